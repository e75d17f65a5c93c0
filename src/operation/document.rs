//! One document of the object patch file: from its fields to an operation, or to the words for what is wrong with it.
//!
//! Pure. Fields that nobody knows are ignored, as in the original. Objects and patches are looked at only as far as needed to know
//! that the server can read them; they are never shown.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::file::{FileError, place_of};
use super::object;
use super::{
    Change, Existing, FIELD_MANAGER, LONGEST_NAME, Operation, Propagation, Target, Verb,
    is_path_segment,
};
use crate::jq::{self, Filter};
use crate::yaml;

/// Fields that hold a plain text, which may look like a number.
pub(super) const TEXTS: [&str; 8] = [
    "operation",
    "apiVersion",
    "kind",
    "namespace",
    "name",
    "subresource",
    "jqFilter",
    "fieldManager",
];

/// LIMIT: characters of a wrong word that are shown; the longest operation has 18.
const SHOWN: usize = 40;

/// How keys are compared: in JSON as Go does, in YAML exactly.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    AnyCase,
    Exact,
}

/// What is wrong with a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    NotAnObject,
    UnknownOperation(String),
    Missing(&'static str),
    /// Field and what it has to be.
    Type(&'static str, &'static str),
    Empty(&'static str),
    /// A name, or a part of one, that would lead to another object.
    Segment(&'static str),
    Long(&'static str),
    /// A field that holds JSON or YAML as text, and does not.
    Text {
        field: &'static str,
        detail: String,
    },
    Filter,
    /// A filter that could end the process.
    Unsafe(&'static str),
    /// Item of a JSON Patch, from 1, and what it lacks.
    Item(usize, &'static str),
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::NotAnObject => {
                out.write_str("an operation is a mapping of fields, not a list or a value")
            }
            Flaw::UnknownOperation(word) => {
                let known: Vec<&str> = Verb::ALL.iter().map(|verb| verb.name()).collect();
                let word: String = word.chars().take(SHOWN).collect();
                write!(out, "operation {word:?} is not one of {}", known.join(", "))
            }
            Flaw::Missing(field) => write!(out, "{field} is required"),
            Flaw::Type(field, wanted) => write!(out, "{field} must be {wanted}"),
            Flaw::Empty(field) => write!(out, "{field} must not be empty"),
            Flaw::Segment(field) => write!(
                out,
                "{field} must not be \".\" or \"..\" nor have a slash or a percent sign"
            ),
            Flaw::Long(field) => write!(out, "{field} is longer than {LONGEST_NAME} bytes"),
            Flaw::Text { field, detail } => {
                write!(
                    out,
                    "{field} is a text that is neither JSON nor YAML: {detail}"
                )
            }
            Flaw::Filter => out.write_str("jqFilter does not compile; try it with jq"),
            Flaw::Unsafe(reason) => write!(out, "jqFilter: {reason}"),
            Flaw::Item(number, lack) => write!(out, "jsonPatch: item {number} {lack}"),
        }
    }
}

/// The fields of a document in their order, each as it was written.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    fields.push(entry);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A document whose keys are compared in its own way.
struct Document<'a> {
    fields: Fields<'a>,
    keys: Keys,
}

/// An object or a patch as JSON.
struct Body {
    json: String,
    /// It was given as a text in a string, which the original does not look into.
    was_text: bool,
}

/// Reads a document that is JSON by now.
pub(super) fn read(number: usize, text: &str, keys: Keys) -> Result<Operation, FileError> {
    let invalid = |what, flaw| FileError::Invalid {
        document: number,
        what,
        flaw,
    };
    let fields =
        serde_json::from_str(text).map_err(|_| invalid(String::new(), Flaw::NotAnObject))?;
    let document = Document { fields, keys };
    let mut verb = None;
    let mut target = Target::default();
    document
        .operation(number, &mut verb, &mut target)
        .map_err(|flaw| {
            let verb = verb.map_or("", Verb::name);
            invalid(format!("{verb} {target}").trim().to_owned(), flaw)
        })
}

impl Document<'_> {
    /// `known` and `target` are told operation and object as soon as they are read, for the words of an error.
    fn operation(
        &self,
        number: usize,
        known: &mut Option<Verb>,
        target: &mut Target,
    ) -> Result<Operation, Flaw> {
        let word = self.text("operation")?.ok_or(Flaw::Missing("operation"))?;
        let verb = Verb::ALL.into_iter().find(|verb| verb.name() == word);
        let verb = verb.ok_or(Flaw::UnknownOperation(word))?;
        *known = Some(verb);
        let subresource = self.text("subresource")?;
        if let Some(name) = &subresource {
            // The original's documents write it with a slash.
            segment("subresource", name.strip_prefix('/').unwrap_or(name))?;
        }
        let change = match verb {
            Verb::Create | Verb::CreateIfNotExists | Verb::CreateOrUpdate | Verb::Apply => {
                let body = self.body("object")?.ok_or(Flaw::Missing("object"))?;
                let object = object::prepare(&body.json, verb == Verb::Apply, target)?;
                self.creation(verb, object)?
            }
            _ => {
                self.name(target)?;
                self.change(verb)?
            }
        };
        Ok(Operation {
            document: number,
            verb,
            target: std::mem::take(target),
            subresource,
            ignore_missing_object: self.truth("ignoreMissingObject")?
                || self.truth("ignoreMissingObjects")?,
            ignore_hook_error: self.truth("ignoreHookError")?,
            change,
        })
    }

    /// Which object is meant, by the fields beside the operation.
    fn name(&self, target: &mut Target) -> Result<(), Flaw> {
        target.api_version = self.text("apiVersion")?;
        target.namespace = self.text("namespace")?.unwrap_or_default();
        target.kind = self.text("kind")?.unwrap_or_default();
        target.name = self.text("name")?.unwrap_or_default();
        if target.kind.is_empty() {
            return Err(Flaw::Missing("kind"));
        }
        // Never without: the path of no object is that of all of them.
        if target.name.is_empty() {
            return Err(Flaw::Missing("name"));
        }
        brief("kind", &target.kind)?;
        brief(
            "apiVersion",
            target.api_version.as_deref().unwrap_or_default(),
        )?;
        segment("name", &target.name)?;
        if !target.namespace.is_empty() {
            segment("namespace", &target.namespace)?;
        }
        Ok(())
    }

    fn creation(&self, verb: Verb, object: String) -> Result<Change, Flaw> {
        let existing = match verb {
            Verb::Apply => {
                let manager = self.text("fieldManager")?;
                return Ok(Change::Apply {
                    object,
                    field_manager: manager.unwrap_or_else(|| FIELD_MANAGER.to_owned()),
                    force: self.truth("force")?,
                });
            }
            Verb::CreateIfNotExists => Existing::Keep,
            Verb::CreateOrUpdate => Existing::Replace,
            _ => Existing::Fail,
        };
        Ok(Change::Create { object, existing })
    }

    fn change(&self, verb: Verb) -> Result<Change, Flaw> {
        Ok(match verb {
            Verb::DeleteInBackground => Change::Delete(Propagation::Background),
            Verb::DeleteNonCascading => Change::Delete(Propagation::Orphan),
            Verb::JqPatch => {
                let text = self.text("jqFilter")?.ok_or(Flaw::Missing("jqFilter"))?;
                // The library's words quote the program, which may hold anything.
                let filter = Filter::compile_bounded(&text);
                Change::Filter(filter.map_err(|error| match error {
                    jq::Error::Unsafe(reason) => Flaw::Unsafe(reason),
                    _ => Flaw::Filter,
                })?)
            }
            Verb::MergePatch => Change::Merge(self.merge_patch()?),
            Verb::JsonPatch => Change::Json(self.json_patch()?),
            _ => Change::Delete(Propagation::Foreground),
        })
    }

    fn merge_patch(&self) -> Result<String, Flaw> {
        const FIELD: &str = "mergePatch";
        let body = self.body(FIELD)?.ok_or(Flaw::Missing(FIELD))?;
        let fields: Fields<'_> =
            serde_json::from_str(&body.json).map_err(|_| Flaw::Type(FIELD, "an object"))?;
        if fields.0.is_empty() && !body.was_text {
            return Err(Flaw::Empty(FIELD));
        }
        Ok(body.json)
    }

    fn json_patch(&self) -> Result<String, Flaw> {
        const FIELD: &str = "jsonPatch";
        let body = self.body(FIELD)?.ok_or(Flaw::Missing(FIELD))?;
        let items: Vec<&RawValue> =
            serde_json::from_str(&body.json).map_err(|_| Flaw::Type(FIELD, "a list"))?;
        if items.is_empty() && !body.was_text {
            return Err(Flaw::Empty(FIELD));
        }
        for (index, item) in items.iter().enumerate() {
            let lack = |lack| Flaw::Item(index + 1, lack);
            let item: Item = serde_json::from_str(item.get())
                .map_err(|_| lack("is not an object with the texts op and path"))?;
            match item.op.as_deref() {
                Some("add" | "replace" | "test" | "remove") => {}
                Some("move" | "copy") if item.from.is_some() => {}
                Some("move" | "copy") => return Err(lack("has no from")),
                Some(_) => {
                    return Err(lack(
                        "has an op that is not one of add, remove, replace, move, copy, test",
                    ));
                }
                None => return Err(lack("has no op")),
            }
            if item.path.is_none() {
                return Err(lack("has no path"));
            }
        }
        Ok(body.json)
    }

    /// The last one counts, as in the original. An explicit null is the same as nothing.
    fn field(&self, name: &str) -> Option<&str> {
        let is_meant = |key: &str| match self.keys {
            Keys::AnyCase => key.eq_ignore_ascii_case(name),
            Keys::Exact => key == name,
        };
        let mut fields = self.fields.0.iter().rev();
        let (_, value) = fields.find(|(key, _)| is_meant(key))?;
        Some(value.get()).filter(|text| *text != "null")
    }

    /// A text, or none when it is empty. In JSON a number is taken as it was written.
    fn text(&self, name: &'static str) -> Result<Option<String>, Flaw> {
        let Some(written) = self.field(name) else {
            return Ok(None);
        };
        let wrong = Flaw::Type(name, "a string");
        let text = match written.chars().next() {
            Some('"') => serde_json::from_str(written).map_err(|_| wrong)?,
            Some('{' | '[') | None => return Err(wrong),
            Some(_) if self.keys == Keys::Exact => {
                return Err(Flaw::Type(name, "a string; put it in quotes"));
            }
            Some(_) => written.to_owned(),
        };
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    fn truth(&self, name: &'static str) -> Result<bool, Flaw> {
        match self.field(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(written) => match written.trim_matches('"').to_lowercase().as_str() {
                "true" | "yes" | "on" | "y" => Ok(true),
                "false" | "no" | "off" | "n" => Ok(false),
                _ => Err(Flaw::Type(name, "true or false")),
            },
        }
    }

    /// An object or a patch, or a text that holds one.
    fn body(&self, name: &'static str) -> Result<Option<Body>, Flaw> {
        let Some(written) = self.field(name) else {
            return Ok(None);
        };
        if !written.starts_with('"') {
            return Ok(Some(Body {
                json: written.to_owned(),
                was_text: false,
            }));
        }
        let text: String =
            serde_json::from_str(written).map_err(|_| Flaw::Type(name, "a string"))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let json = if serde_json::from_str::<IgnoredAny>(&text).is_ok() {
            text
        } else {
            let node = yaml::parse_object(&text).map_err(|error| Flaw::Text {
                field: name,
                detail: place_of(&error),
            })?;
            node.to_value().to_string()
        };
        Ok(Some(Body {
            json,
            was_text: true,
        }))
    }
}

/// Refuses what is not one piece of a path (`is_path_segment`).
pub(super) fn segment(field: &'static str, text: &str) -> Result<(), Flaw> {
    if !is_path_segment(text) {
        return Err(Flaw::Segment(field));
    }
    brief(field, text)
}

pub(super) fn brief(field: &'static str, text: &str) -> Result<(), Flaw> {
    if text.len() > LONGEST_NAME {
        return Err(Flaw::Long(field));
    }
    Ok(())
}

/// An item of a JSON Patch, as far as it is looked at.
#[derive(Deserialize)]
struct Item {
    op: Option<String>,
    path: Option<String>,
    from: Option<String>,
}
