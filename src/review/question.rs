//! AdmissionReview on the wire: the question as it came, the answer built from the question so that uid and version cannot be
//! forgotten. No I/O, no process: `decide.rs` decides which answer it is.
//!
//! Objects are never decoded here. The request is kept as the bytes that arrived, and a hook gets exactly those.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Deepest nesting that is handed on: that of the API server's own JSON decoder. With a smaller one a deep custom resource would
/// be answered with an HTTP error, and so pass under `failurePolicy: Ignore`. Nothing here recurses into an object.
const MAX_DEPTH: usize = 10_000;

/// What share of the time is kept for sending the answer: a tenth, but at least `LEAST_MARGIN`.
const MARGIN_SHARE: u32 = 10;
const LEAST_MARGIN: Duration = Duration::from_millis(100);

/// A kind of review, and its versions; hooks always see the first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) kind: &'static str,
    pub(crate) versions: [&'static str; 2],
}

const ADMISSION: Form = Form {
    kind: "AdmissionReview",
    versions: ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"],
};

/// One AdmissionReview that asks. Owns the bytes it arrived in.
#[derive(Debug)]
pub(crate) struct Question {
    body: Vec<u8>,
    request: Range<usize>,
    object: Option<Range<usize>>,
    old_object: Option<Range<usize>>,
    pub(crate) api_version: String,
    pub(crate) uid: String,
    pub(crate) operation: String,
    pub(crate) kind: GroupVersionKind,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    pub(crate) dry_run: bool,
}

/// What an answer must repeat of its question.
#[derive(Clone, Debug)]
pub(crate) struct ReviewId {
    pub(crate) api_version: String,
    pub(crate) uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GroupVersionKind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// `group/version.Kind`, or `version.Kind` for the core group (HX-23).
impl std::fmt::Display for GroupVersionKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.group.is_empty() {
            write!(formatter, "{}/", self.group)?;
        }
        write!(formatter, "{}.{}", self.version, self.kind)
    }
}

/// Why a body is no question. The texts are what the caller reads in the 400 answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BadReview {
    NotJson(String),
    TooDeep,
    UnknownVersion {
        expected: &'static Form,
        api_version: String,
        kind: String,
    },
    NoRequest,
    NoUid,
    /// Only a conversion has one.
    NoDesiredVersion,
}

impl std::fmt::Display for BadReview {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadReview::NotJson(why) => write!(formatter, "Invalid JSON payload: {why}"),
            BadReview::TooDeep => write!(
                formatter,
                "Invalid JSON payload: nested deeper than {MAX_DEPTH}"
            ),
            BadReview::UnknownVersion {
                expected,
                api_version,
                kind,
            } => write!(
                formatter,
                "expected a review of kind {} of {}, got '{kind}' of '{api_version}'",
                expected.kind,
                expected.versions.join(" or ")
            ),
            BadReview::NoRequest => write!(formatter, "Missing parameters: request"),
            BadReview::NoUid => write!(formatter, "Missing parameters: request.uid"),
            BadReview::NoDesiredVersion => {
                write!(formatter, "Missing parameters: request.desiredAPIVersion")
            }
        }
    }
}

/// What every kind of review looks like from outside.
#[derive(Deserialize)]
pub(crate) struct Envelope<'a> {
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Opens a body that should be a review of this form; answers its version and its request.
    pub(crate) fn open(
        body: &'a [u8],
        form: &'static Form,
    ) -> Result<(String, &'a RawValue), BadReview> {
        if deeper_than(body, MAX_DEPTH) {
            return Err(BadReview::TooDeep);
        }
        let envelope: Envelope<'_> = serde_json::from_slice(body)?;
        let version = envelope.api_version.into_owned();
        if envelope.kind != form.kind || !form.versions.contains(&version.as_str()) {
            return Err(BadReview::UnknownVersion {
                expected: form,
                api_version: version,
                kind: envelope.kind.into_owned(),
            });
        }
        let request = envelope.request.ok_or(BadReview::NoRequest)?;
        Ok((version, request))
    }
}

impl From<serde_json::Error> for BadReview {
    fn from(error: serde_json::Error) -> BadReview {
        BadReview::NotJson(error.to_string())
    }
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default)]
    kind: GroupVersionKind,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default, rename = "dryRun")]
    dry_run: Option<bool>,
    #[serde(default, rename = "subResource")]
    subresource: Option<String>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "oldObject")]
    old_object: Option<&'a RawValue>,
}

/// The only part of an object that the structural check reads.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: NamedMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NamedMeta {
    name: Option<String>,
    generate_name: Option<String>,
}

impl Question {
    /// Reads a body as an AdmissionReview that asks something.
    pub(crate) fn parse(body: Vec<u8>) -> Result<Question, BadReview> {
        let (api_version, raw) = Envelope::open(&body, &ADMISSION)?;
        let request: Request<'_> = serde_json::from_str(raw.get())?;
        if request.uid.is_empty() {
            return Err(BadReview::NoUid);
        }
        let place = |object: Option<&RawValue>| {
            let object = object.filter(|object| object.get() != "null")?;
            Some(position(&body, object.get()))
        };
        let question = Question {
            request: position(&body, raw.get()),
            object: place(request.object),
            old_object: place(request.old_object),
            api_version,
            uid: request.uid,
            operation: request.operation,
            kind: request.kind,
            name: request.name.unwrap_or_default(),
            namespace: request.namespace.unwrap_or_default(),
            subresource: request.subresource.unwrap_or_default(),
            dry_run: request.dry_run.unwrap_or(false),
            body: Vec::new(),
        };
        Ok(Question { body, ..question })
    }

    /// What the answer must repeat.
    pub(crate) fn id(&self) -> ReviewId {
        ReviewId {
            api_version: self.api_version.clone(),
            uid: self.uid.clone(),
        }
    }

    /// The `request` member, byte for byte as it came.
    pub(crate) fn request(&self) -> &[u8] {
        self.body.get(self.request.clone()).unwrap_or_default()
    }

    /// The object under review, absent on DELETE.
    pub(crate) fn object(&self) -> Option<&[u8]> {
        self.body.get(self.object.clone()?)
    }

    /// The object as it was, absent on CREATE.
    pub(crate) fn old_object(&self) -> Option<&[u8]> {
        self.body.get(self.old_object.clone()?)
    }

    /// HX-55…HX-58: what a well-formed resource must have, checked without a process. `None` if all is well.
    pub(crate) fn structural_flaw(&self) -> Option<String> {
        let object = self.object()?;
        let named: Named = match serde_json::from_slice(object) {
            Ok(named) => named,
            Err(error) => {
                return Some(format!("the object is not a well-formed resource: {error}"));
            }
        };
        let given = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
        if given(&named.metadata.name) || given(&named.metadata.generate_name) {
            None
        } else {
            Some("metadata.name or metadata.generateName is required".to_owned())
        }
    }
}

/// Where `part`, which was borrowed from `whole`, stands in it.
fn position(whole: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start.saturating_add(part.len())
}

/// True if brackets nest deeper than `limit`. Strings are skipped; anything else wrong with the text is the parser's business.
fn deeper_than(text: &[u8], limit: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > limit {
            return true;
        }
    }
    false
}

/// The `timeout` parameter that the API server adds, such as `timeout=10s`.
pub(crate) fn asked_timeout(query: Option<&str>) -> Option<Duration> {
    let value = query?
        .split('&')
        .find_map(|pair| pair.strip_prefix("timeout="))?;
    crate::duration::parse(value)
        .ok()
        .filter(|timeout| !timeout.is_zero())
}

/// How long a hook may run: the smaller of what the API server says and what the binding says, less the margin.
pub(crate) fn time_limit(asked: Option<Duration>, configured: Duration) -> Duration {
    let limit = asked.map_or(configured, |asked| asked.min(configured));
    limit.saturating_sub((limit / MARGIN_SHARE).max(LEAST_MARGIN))
}

/// What is answered. `code` and `message` are only sent with a denial.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) code: u16,
    pub(crate) message: String,
    /// Empty for none.
    pub(crate) reason: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) audit_annotations: BTreeMap<String, String>,
    /// A JSON Patch in base64; none when it would change nothing.
    pub(crate) patch: Option<String>,
}

impl Answer {
    /// A denial of our own making.
    pub(crate) fn deny(code: u16, message: String) -> Self {
        Answer {
            code,
            message,
            ..Answer::default()
        }
    }

    /// The AdmissionReview that answers the question with this id, in the version it was asked in.
    pub(crate) fn render(&self, id: &ReviewId) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&WireReview {
            api_version: &id.api_version,
            kind: ADMISSION.kind,
            response: WireResponse {
                uid: &id.uid,
                allowed: self.allowed,
                status: (!self.allowed).then_some(WireStatus {
                    code: self.code,
                    message: &self.message,
                    reason: &self.reason,
                }),
                patch_type: self.patch.as_ref().map(|_| "JSONPatch"),
                patch: self.patch.as_deref(),
                warnings: &self.warnings,
                audit_annotations: &self.audit_annotations,
            },
        })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireReview<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    audit_annotations: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct WireStatus<'a> {
    code: u16,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(version: &str, request: &str) -> Vec<u8> {
        format!(
            r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/{version}","request":{request}}}"#
        )
        .into_bytes()
    }

    #[test]
    fn the_request_reaches_the_hook_byte_for_byte_so_21_so_22() {
        let request = r#"{"uid":"u-1", "operation":"CREATE","kind":{"group":"apps","version":"v1","kind":"Deployment"},"name":"n","namespace":"s","dryRun":true,"object":{"n":12345678901234567890,"s":"\u003c"},"oldObject":null}"#;
        let question = Question::parse(review("v1", request)).unwrap();
        assert_eq!(question.request(), request.as_bytes());
        assert_eq!(
            question.object().unwrap(),
            br#"{"n":12345678901234567890,"s":"\u003c"}"#
        );
        assert_eq!(question.kind.to_string(), "apps/v1.Deployment");
        assert!(question.dry_run);
    }

    #[test]
    fn an_answer_repeats_uid_and_version_hx_13_aw_66() {
        for version in ["v1", "v1beta1"] {
            let question =
                Question::parse(review(version, r#"{"uid":"u","object":null}"#)).unwrap();
            assert_eq!(question.object(), None);
            let answer = Answer {
                allowed: true,
                patch: Some("W10=".to_owned()),
                ..Answer::default()
            };
            let wire = String::from_utf8(answer.render(&question.id()).unwrap()).unwrap();
            let expected = format!(
                r#"{{"apiVersion":"admission.k8s.io/{version}","kind":"AdmissionReview","response":{{"uid":"u","allowed":true,"patchType":"JSONPatch","patch":"W10="}}}}"#
            );
            assert_eq!(wire, expected);
        }
    }

    #[test]
    fn what_is_no_review_is_refused_aw_63_aw_64() {
        let deep = format!(r#"{{"kind":{}"#, "[".repeat(200_000));
        let cases: [(Vec<u8>, &str); 6] = [
            (b"{".to_vec(), "Invalid JSON payload"),
            (b"".to_vec(), "Invalid JSON payload"),
            (deep.into_bytes(), "nested deeper than 10000"),
            (
                review("v2", "{}"),
                "got 'AdmissionReview' of 'admission.k8s.io/v2'",
            ),
            (review("v1", "null"), "Missing parameters: request"),
            (review("v1", "{}"), "Missing parameters: request.uid"),
        ];
        for (body, expected) in cases {
            let error = Question::parse(body).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_resource_needs_a_name_hx_56_hx_58() {
        let flaw = |object: &str| {
            let request = format!(r#"{{"uid":"u","object":{object}}}"#);
            Question::parse(review("v1", &request))
                .unwrap()
                .structural_flaw()
        };
        let text = "metadata.name or metadata.generateName is required";
        assert_eq!(flaw(r#"{"metadata":{"name":"a"}}"#), None);
        assert_eq!(flaw(r#"{"metadata":{"generateName":"a-"}}"#), None);
        assert_eq!(flaw("null"), None);
        assert_eq!(flaw("{}").as_deref(), Some(text));
        assert_eq!(flaw(r#"{"metadata":{"name":""}}"#).as_deref(), Some(text));
        assert!(flaw(r#"{"metadata":[]}"#).is_some());
    }

    #[test]
    fn the_time_limit_leaves_a_margin() {
        let seconds = Duration::from_secs;
        let millis = Duration::from_millis;
        assert_eq!(time_limit(Some(seconds(10)), seconds(30)), seconds(9));
        assert_eq!(time_limit(Some(seconds(30)), seconds(2)), millis(1800));
        assert_eq!(time_limit(None, seconds(1)), millis(900));
        assert_eq!(time_limit(Some(millis(50)), seconds(1)), Duration::ZERO);
    }
}
