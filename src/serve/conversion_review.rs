//! ConversionReview on the wire: the objects to convert as they came, the answer built from the question so that uid and version
//! cannot be forgotten. No I/O, no process: `serve/conversion.rs` has the objects converted.
//!
//! Of an object only what the API server compares is read: version, kind and identity. The rest is handed on byte for byte.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::review::{BadReview, Envelope, Form, ReviewId};

const CONVERSION: Form = Form {
    kind: "ConversionReview",
    versions: ["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"],
};

/// One ConversionReview that asks.
pub(crate) struct Question {
    pub(crate) id: ReviewId,
    /// With its group.
    pub(crate) desired: String,
    pub(crate) objects: Vec<Object>,
}

/// An object in one of its versions.
pub(crate) struct Object {
    pub(crate) json: Box<RawValue>,
    pub(crate) api_version: String,
    pub(crate) identity: ObjectIdentity,
}

/// What no conversion may change: the API server would refuse the whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectIdentity {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

/// `CronTab 'namespace/name'`.
impl std::fmt::Display for ObjectIdentity {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} '", self.kind)?;
        if !self.namespace.is_empty() {
            write!(formatter, "{}/", self.namespace)?;
        }
        write!(formatter, "{}'", self.name)
    }
}

impl ObjectIdentity {
    /// The first field in which `other` differs.
    pub(crate) fn difference(&self, other: &ObjectIdentity) -> Option<&'static str> {
        [
            ("kind", &self.kind, &other.kind),
            ("metadata.namespace", &self.namespace, &other.namespace),
            ("metadata.name", &self.name, &other.name),
            ("metadata.uid", &self.uid, &other.uid),
        ]
        .into_iter()
        .find_map(|(field, own, others)| (own != others).then_some(field))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireObject {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    metadata: WireMeta,
}

#[derive(Deserialize)]
struct WireMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
}

impl Object {
    /// Fails for what is no object or has no metadata.
    pub(crate) fn read(json: Box<RawValue>) -> Result<Object, serde_json::Error> {
        let wire: WireObject = serde_json::from_str(json.get())?;
        let meta = wire.metadata;
        Ok(Object {
            json,
            api_version: wire.api_version,
            identity: ObjectIdentity {
                kind: wire.kind,
                namespace: meta.namespace.unwrap_or_default(),
                name: meta.name.unwrap_or_default(),
                uid: meta.uid.unwrap_or_default(),
            },
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest {
    #[serde(default)]
    uid: String,
    #[serde(default, rename = "desiredAPIVersion")]
    desired: String,
    #[serde(default)]
    objects: Option<Vec<Box<RawValue>>>,
}

impl Question {
    /// Reads a body as a ConversionReview that asks something.
    pub(crate) fn parse(body: &[u8]) -> Result<Question, BadReview> {
        let (api_version, request) = Envelope::open(body, &CONVERSION)?;
        let request: WireRequest = serde_json::from_str(request.get())?;
        if request.uid.is_empty() {
            return Err(BadReview::NoUid);
        }
        if request.desired.is_empty() {
            return Err(BadReview::NoDesiredVersion);
        }
        let objects = request.objects.unwrap_or_default();
        Ok(Question {
            id: ReviewId {
                api_version,
                uid: request.uid,
            },
            desired: request.desired,
            objects: objects
                .into_iter()
                .map(Object::read)
                .collect::<Result<_, _>>()?,
        })
    }
}

/// What is answered.
pub(crate) enum Answer {
    /// In the order of the question.
    Converted(Vec<Object>),
    /// For the user to read.
    Failed(String),
}

impl Answer {
    /// The ConversionReview that answers the question with this id, in the version it was asked in.
    pub(crate) fn render(&self, id: &ReviewId) -> Result<Vec<u8>, serde_json::Error> {
        let (objects, status, message) = match self {
            Answer::Converted(objects) => (objects.as_slice(), "Success", None),
            Answer::Failed(message) => (&[][..], "Failure", Some(message.as_str())),
        };
        serde_json::to_vec(&WireReview {
            api_version: &id.api_version,
            kind: CONVERSION.kind,
            response: WireResponse {
                uid: &id.uid,
                converted_objects: objects.iter().map(|object| &*object.json).collect(),
                result: WireResult { status, message },
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
    converted_objects: Vec<&'a RawValue>,
    result: WireResult<'a>,
}

#[derive(Serialize)]
struct WireResult<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a","namespace":"n","uid":"o-1","labels":{}},"spec":{"big":12345678901234567890,"s":"\u003c"}}"#;

    fn review(version: &str, request: &str) -> Vec<u8> {
        format!(
            r#"{{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/{version}","request":{request}}}"#
        )
        .into_bytes()
    }

    fn question(version: &str) -> Question {
        let request = format!(
            r#"{{"uid":"u-1","desiredAPIVersion":"stable.example.com/v2","objects":[{OBJECT}]}}"#
        );
        Question::parse(&review(version, &request)).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn objects_are_kept_byte_for_byte_and_answered_in_the_version_they_came_in() {
        for version in ["v1", "v1beta1"] {
            let question = question(version);
            assert_eq!(question.desired, "stable.example.com/v2");
            let object = &question.objects[0];
            assert_eq!(object.json.get(), OBJECT);
            assert_eq!(object.api_version, "stable.example.com/v1");
            assert_eq!(object.identity.to_string(), "CronTab 'n/a'");
            let answer = Answer::Converted(question.objects);
            let wire = String::from_utf8(answer.render(&question.id).unwrap()).unwrap();
            let expected = format!(
                r#"{{"apiVersion":"apiextensions.k8s.io/{version}","kind":"ConversionReview","response":{{"uid":"u-1","convertedObjects":[{OBJECT}],"result":{{"status":"Success"}}}}}}"#
            );
            assert_eq!(wire, expected);
        }
    }

    #[test]
    fn a_failure_has_a_message_and_no_objects() {
        let wire = Answer::Failed("say \"no\"".to_owned())
            .render(&question("v1").id)
            .unwrap();
        assert_eq!(
            String::from_utf8(wire).unwrap(),
            r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u-1","convertedObjects":[],"result":{"status":"Failure","message":"say \"no\""}}}"#
        );
    }

    #[test]
    fn what_is_no_conversion_review_is_refused() {
        let admission =
            br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{}}"#;
        let with_objects = |objects: &str| {
            review(
                "v1",
                &format!(r#"{{"uid":"u","desiredAPIVersion":"g/v1","objects":{objects}}}"#),
            )
        };
        let deep = format!(r#"{{"kind":{}"#, "[".repeat(200_000));
        let cases: [(Vec<u8>, &str); 10] = [
            (b"".to_vec(), "Invalid JSON payload"),
            (deep.into_bytes(), "nested deeper than 10000"),
            (
                admission.to_vec(),
                "expected a review of kind ConversionReview of apiextensions.k8s.io/v1 or apiextensions.k8s.io/v1beta1, got 'AdmissionReview'",
            ),
            (
                review("v2", "{}"),
                "got 'ConversionReview' of 'apiextensions.k8s.io/v2'",
            ),
            (review("v1", "null"), "Missing parameters: request"),
            (review("v1", "{}"), "Missing parameters: request.uid"),
            (
                review("v1", r#"{"uid":"u"}"#),
                "Missing parameters: request.desiredAPIVersion",
            ),
            (with_objects("[1]"), "Invalid JSON payload"),
            (
                with_objects("[{}]"),
                "Invalid JSON payload: missing field `metadata`",
            ),
            (
                with_objects(r#"[{"metadata":"x"}]"#),
                "Invalid JSON payload",
            ),
        ];
        for (body, expected) in cases {
            let error = Question::parse(&body).err().map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|text| text.contains(expected)),
                "{expected}: {error:?}"
            );
        }
        for none in ["null", "[]"] {
            let question = Question::parse(&with_objects(none));
            assert_eq!(
                question.map(|question| question.objects.len()).ok(),
                Some(0)
            );
        }
    }

    #[test]
    fn what_makes_an_object_another_one_is_named() {
        let read = |text: &str| {
            let json = RawValue::from_string(text.to_owned()).unwrap();
            Object::read(json).unwrap().identity
        };
        let original = read(OBJECT);
        let relabelled = OBJECT
            .replace("example.com/v1", "example.com/v2")
            .replace(r#""labels":{}"#, r#""annotations":{"a":"b"}"#);
        assert_eq!(original.difference(&read(&relabelled)), None);
        for (from, to, field) in [
            ("CronTab", "Crontab", "kind"),
            (r#""name":"a""#, r#""name":"b""#, "metadata.name"),
            (r#""namespace":"n","#, "", "metadata.namespace"),
            ("o-1", "o-2", "metadata.uid"),
        ] {
            let changed = read(&OBJECT.replace(from, to));
            assert_eq!(original.difference(&changed), Some(field));
        }
    }
}
