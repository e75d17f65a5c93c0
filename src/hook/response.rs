//! What an admission or conversion hook answered.
//!
//! Pure: bytes of the response file in, a verdict or an error out, on the thread that ran the hook. Strict where a mistake could
//! allow something: `allowed` is true only if it says `true`, once. Everything else that is wrong is an error that names the
//! field, and the caller denies. Values never appear in errors or in `Debug`: a patch may hold a Secret.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::binding::AdmissionKind;
use super::json_patch::{PatchError, try_patch};

/// The status code of a denial that names none, as in the original.
const FORBIDDEN: u16 = 403;

/// AW-51: authors are asked to stay within this many characters for a warning.
const WARNING_ADVISED: usize = 120;
/// LIMIT: longest warning that is passed on; the API server cuts at this length when the warnings of a request are many.
const WARNING_MAX: usize = 256;
/// LIMIT: all warnings of an answer; the API server's budget for all sources of a request.
const WARNINGS_TOTAL: usize = 4096;
/// What a cut warning ends with.
const CUT: &str = "...";

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ResponseError {
    Empty,
    NotJson(String),
    NotAnObject(&'static str),
    Field {
        field: &'static str,
        expected: &'static str,
        found: &'static str,
    },
    /// The same key more than once, in whatever case.
    Twice(&'static str),
    /// Further documents in the file say something else about `allowed`.
    Contradiction,
    /// A conversion with neither objects nor a message.
    NoObjects,
    PatchNotBase64,
    PatchNotJson,
    PatchFromValidating,
    /// There is no object to patch for this operation.
    PatchOn(String),
    /// The object of the request could not be read to try the patch on it.
    PatchObject,
    Patch(PatchError),
}

impl fmt::Display for ResponseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => out.write_str("the response file is empty"),
            Self::NotJson(detail) => write!(out, "the response is not JSON: {detail}"),
            Self::NotAnObject(found) => write!(out, "the response must be an object, not {found}"),
            Self::Field {
                field,
                expected,
                found,
            } => write!(out, "`{field}` in the response must be {expected}, not {found}"),
            Self::Twice(field) => write!(out, "`{field}` is in the response more than once"),
            Self::Contradiction => {
                out.write_str("the response file holds several answers that disagree about `allowed`")
            }
            Self::NoObjects => out.write_str("the answer has no convertedObjects"),
            Self::PatchNotBase64 => {
                out.write_str("`patch` is a string but not base64: give the JSON Patch array itself, or encode it")
            }
            Self::PatchNotJson => out.write_str("`patch` is not a JSON Patch: an array of operations is expected"),
            Self::PatchFromValidating => {
                out.write_str("a validating hook cannot patch: declare it under kubernetesMutating")
            }
            Self::PatchOn(operation) => write!(out, "there is no object to patch on {operation}"),
            Self::PatchObject => out.write_str("the object of the request cannot be read to try the patch"),
            Self::Patch(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for ResponseError {}

/// A JSON Patch: the operations, and the bytes that go to the API server.
#[derive(Clone, PartialEq)]
pub(crate) struct Patch {
    pub(crate) operations: Vec<Value>,
    pub(crate) json: Vec<u8>,
}

impl fmt::Debug for Patch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Patch({} operations)", self.operations.len())
    }
}

/// What the API server is to be told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    /// Meaningful only for a denial, like message and reason.
    pub(crate) code: u16,
    pub(crate) message: String,
    pub(crate) reason: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
    pub(crate) phase: Option<String>,
    /// None also for a patch without operations, and for a denial.
    pub(crate) patch: Option<Patch>,
}

/// A verdict, and lines for the log about how to write a better answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdmissionAnswer {
    pub(crate) verdict: Verdict,
    pub(crate) advice: Vec<String>,
}

impl AdmissionAnswer {
    /// Reads the response file of an admission hook.
    pub(crate) fn parse(file: &[u8]) -> Result<AdmissionAnswer, ResponseError> {
        let mut documents = documents(file);
        let mut answer = first(&mut documents)?;
        let allowed = match answer.take("allowed")? {
            None => false,
            Some(Value::Bool(allowed)) => allowed,
            Some(other) => return Err(wrong("allowed", "true or false", &other)),
        };
        contradicted(documents, allowed)?;
        let message = text("message", answer.take_some("message")?)?;
        let status = status(answer.take_some("status")?)?;
        let mut advice = Vec::new();
        let warnings = warnings(answer.take_some("warnings")?, &mut advice)?;
        let audit_annotations = audit_annotations(answer.take_some("auditAnnotations")?)?;
        let phase = text("phase", answer.take_some("phase")?)?;
        match answer.take_some("patchType")? {
            None => {}
            Some(Value::String(kind)) if kind == "JSONPatch" => {}
            Some(other) => return Err(wrong("patchType", "JSONPatch", &other)),
        }
        let patch = patch(answer.take_some("patch")?)?;
        Ok(AdmissionAnswer {
            verdict: Verdict {
                allowed,
                code: status.code,
                message: status.message.or(message).unwrap_or_default(),
                reason: status.reason.unwrap_or_default(),
                warnings,
                audit_annotations,
                phase,
                patch: patch.filter(|_| allowed),
            },
            advice,
        })
    }

    /// Whether the patch, if there is one, is allowed for this question and works on its object. The API server would fail the
    /// user's request with an internal error otherwise, whatever the failure policy says.
    pub(crate) fn check_patch(
        &self,
        kind: AdmissionKind,
        operation: &str,
        object: Option<&[u8]>,
    ) -> Result<(), ResponseError> {
        let Some(patch) = &self.verdict.patch else {
            return Ok(());
        };
        if kind == AdmissionKind::Validating {
            return Err(ResponseError::PatchFromValidating);
        }
        let object = match (operation, object) {
            ("DELETE" | "CONNECT", _) | (_, None) => {
                return Err(ResponseError::PatchOn(operation.to_owned()));
            }
            (_, Some(object)) => object,
        };
        let object: Value =
            serde_json::from_slice(object).map_err(|_error| ResponseError::PatchObject)?;
        if object.is_null() {
            return Err(ResponseError::PatchOn(operation.to_owned()));
        }
        try_patch(&object, &patch.operations)
            .map(|_patched| ())
            .map_err(ResponseError::Patch)
    }
}

/// What a conversion hook answered.
pub(crate) enum ConversionAnswer {
    /// The objects as the hook wrote them.
    Converted(Vec<Box<RawValue>>),
    /// The hook's own words for the user.
    Failed(String),
}

/// Objects may be anybody's secrets.
impl fmt::Debug for ConversionAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Converted(objects) => write!(out, "Converted({} objects)", objects.len()),
            Self::Failed(message) => write!(out, "Failed({message})"),
        }
    }
}

impl ConversionAnswer {
    /// Reads the response file of a conversion hook.
    pub(crate) fn parse(file: &[u8]) -> Result<ConversionAnswer, ResponseError> {
        let mut answer = first(&mut documents(file))?;
        if let Some(message) = text("failedMessage", answer.take_some("failedMessage")?)?
            && !message.is_empty()
        {
            return Ok(ConversionAnswer::Failed(message));
        }
        let Some(objects) = answer.take_raw("convertedObjects")? else {
            return Err(ResponseError::NoObjects);
        };
        let expected = ResponseError::Field {
            field: "convertedObjects",
            expected: "an array of objects",
            found: "something else",
        };
        let objects: Option<Vec<Box<RawValue>>> =
            serde_json::from_str(objects.get()).map_err(|_error| expected.clone())?;
        let objects = objects.ok_or(ResponseError::NoObjects)?;
        if objects.iter().any(|object| !object.get().starts_with('{')) {
            return Err(expected);
        }
        Ok(ConversionAnswer::Converted(objects))
    }
}

/// The entries of an object in the order they were written, each value as text.
struct Entries(Vec<(String, Box<RawValue>)>);

type Documents<'a> =
    serde_json::StreamDeserializer<'a, serde_json::de::SliceRead<'a>, Box<RawValue>>;

fn documents(file: &[u8]) -> Documents<'_> {
    serde_json::Deserializer::from_slice(file).into_iter()
}

/// The first document of the file; what follows is not part of the answer, as in the original.
fn first(documents: &mut Documents<'_>) -> Result<Entries, ResponseError> {
    let document = documents
        .next()
        .ok_or(ResponseError::Empty)?
        .map_err(|error| ResponseError::NotJson(error.to_string()))?;
    entries(&document)
}

fn entries(document: &RawValue) -> Result<Entries, ResponseError> {
    let text = document.get();
    if !text.starts_with('{') {
        let found = serde_json::from_str(text).map_or("something else", |value| type_name(&value));
        return Err(ResponseError::NotAnObject(found));
    }
    serde_json::from_str(text).map_err(|error| ResponseError::NotJson(error.to_string()))
}

/// A hook that appends to the file may have written two answers. The first counts, unless a later one disagrees: then nobody
/// knows what the hook meant.
fn contradicted(documents: Documents<'_>, allowed: bool) -> Result<(), ResponseError> {
    for document in documents.map_while(Result::ok) {
        let Ok(mut later) = entries(&document) else {
            continue;
        };
        if let Some(other) = later.take("allowed")?
            && other != Value::Bool(allowed)
        {
            return Err(ResponseError::Contradiction);
        }
    }
    Ok(())
}

impl Entries {
    /// The value of a key in any case, as the original matches keys; a key that is there twice is ambiguous.
    fn take_raw(&mut self, key: &'static str) -> Result<Option<Box<RawValue>>, ResponseError> {
        let mut found = None;
        for (name, value) in &self.0 {
            if name.eq_ignore_ascii_case(key) && found.replace(value.clone()).is_some() {
                return Err(ResponseError::Twice(key));
            }
        }
        Ok(found)
    }

    fn take(&mut self, key: &'static str) -> Result<Option<Value>, ResponseError> {
        self.take_raw(key)?
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose()
            .map_err(|error: serde_json::Error| ResponseError::NotJson(error.to_string()))
    }

    /// As `take`, for keys where null means the same as nothing.
    fn take_some(&mut self, key: &'static str) -> Result<Option<Value>, ResponseError> {
        Ok(self.take(key)?.filter(|value| !value.is_null()))
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Entries(entries))
    }
}

struct Status {
    code: u16,
    message: Option<String>,
    reason: Option<String>,
}

/// SO-26: the proposal's shape of a denial, beside the original's plain `message`.
fn status(value: Option<Value>) -> Result<Status, ResponseError> {
    let mut status = Status {
        code: FORBIDDEN,
        message: None,
        reason: None,
    };
    let mut fields = match value {
        None => return Ok(status),
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(wrong("status", "an object", &other)),
    };
    let mut take = |key: &str| fields.remove(key).filter(|value| !value.is_null());
    if let Some(code) = take("code") {
        let number = code.as_u64().and_then(|code| u16::try_from(code).ok());
        match number {
            Some(0) => {}
            Some(number) if number < 600 => status.code = number,
            _ => return Err(wrong("status.code", "an HTTP status code", &code)),
        }
    }
    status.message = text("status.message", take("message"))?;
    status.reason = text("status.reason", take("reason"))?;
    Ok(status)
}

fn text(field: &'static str, value: Option<Value>) -> Result<Option<String>, ResponseError> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(field, "a string", &other)),
    }
}

fn audit_annotations(value: Option<Value>) -> Result<BTreeMap<String, String>, ResponseError> {
    const FIELD: &str = "auditAnnotations";
    match value {
        None => Ok(BTreeMap::new()),
        Some(Value::Object(fields)) => fields
            .into_iter()
            .map(|(key, value)| match value {
                Value::String(text) => Ok((key, text)),
                other => Err(wrong(FIELD, "an object of strings", &other)),
            })
            .collect(),
        Some(other) => Err(wrong(FIELD, "an object of strings", &other)),
    }
}

fn warnings(value: Option<Value>, advice: &mut Vec<String>) -> Result<Vec<String>, ResponseError> {
    const EXPECTED: &str = "an array of strings";
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => return Err(wrong("warnings", EXPECTED, &other)),
    };
    let mut kept: Vec<String> = Vec::new();
    let mut total = 0;
    let mut left_out = 0;
    for (index, item) in items.iter().enumerate() {
        let Value::String(item) = item else {
            return Err(wrong("warnings", EXPECTED, item));
        };
        let line = one_line(item);
        let length = line.chars().count();
        if length > WARNING_ADVISED {
            advice.push(format!(
                "warning {} has {length} characters: {WARNING_ADVISED} are advised, {WARNING_MAX} are shown",
                index + 1
            ));
        }
        let line = cut(line, length);
        total += line.chars().count();
        if total > WARNINGS_TOTAL {
            left_out += 1;
        } else if !line.is_empty() {
            kept.push(line);
        }
    }
    if left_out > 0 {
        advice.push(format!(
            "{left_out} warnings are left out: all together may have {WARNINGS_TOTAL} characters"
        ));
    }
    Ok(kept)
}

/// A warning travels in an HTTP header: line breaks and tabs become spaces, other control characters go.
fn one_line(text: &str) -> String {
    text.trim()
        .chars()
        .filter_map(|letter| match letter {
            '\n' | '\t' => Some(' '),
            _ if letter.is_control() => None,
            _ => Some(letter),
        })
        .collect()
}

fn cut(line: String, length: usize) -> String {
    if length <= WARNING_MAX {
        return line;
    }
    let mut short: String = line.chars().take(WARNING_MAX - CUT.len()).collect();
    short.push_str(CUT);
    short
}

/// AW-50: base64 as the original wants it, or the array itself, which we encode.
fn patch(value: Option<Value>) -> Result<Option<Patch>, ResponseError> {
    let (operations, json) = match value {
        None => return Ok(None),
        Some(Value::String(text)) => {
            let text: String = text.split_ascii_whitespace().collect();
            if text.is_empty() {
                return Ok(None);
            }
            let decoded = STANDARD.decode(text);
            let json = decoded.map_err(|_error| ResponseError::PatchNotBase64)?;
            let value =
                serde_json::from_slice(&json).map_err(|_error| ResponseError::PatchNotJson)?;
            (value, json)
        }
        Some(array @ Value::Array(_)) => {
            let json = array.to_string().into_bytes();
            (array, json)
        }
        Some(other) => {
            let expected = "a base64 string or a JSON Patch array";
            return Err(wrong("patch", expected, &other));
        }
    };
    match operations {
        Value::Array(operations) if operations.is_empty() => Ok(None),
        Value::Array(operations) => Ok(Some(Patch { operations, json })),
        Value::Null => Ok(None),
        _ => Err(ResponseError::PatchNotJson),
    }
}

fn wrong(field: &'static str, expected: &'static str, found: &Value) -> ResponseError {
    ResponseError::Field {
        field,
        expected,
        found: type_name(found),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
