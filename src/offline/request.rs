//! A request as the API server would put it before webhooks: from a manifest, or from a recorded AdmissionReview.
//!
//! Pure. What the API server itself fills in before it asks is filled in here as far as rules and hooks can depend on it: namespace,
//! the label of a namespace, what an update may not change, a name for `generateName`. Defaults of built-in kinds are not: nobody
//! knows them but the API server.

use serde_json::{Map, Value, json};

use super::cluster::{Identity, NAME_LABEL};
use super::kinds::{Gvk, Kinds, split_api_version};
use super::manifest::Manifest;
use super::outcome::{ObjectName, Operation, Verdict};
use super::subresource;
use crate::kube::Resource;

/// What stands in for the five letters that the API server makes up. Always the same, so that reports are.
const GENERATED: &str = "xxxxx";

/// What the command line says about every request.
pub(super) struct Wish {
    pub(super) operation: Option<Operation>,
    pub(super) subresource: String,
    /// For objects that name none.
    pub(super) namespace: String,
    pub(super) user: Value,
    pub(super) dry_run: bool,
}

/// Group, version and plural.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gvr {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
}

/// One request.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) kind: Gvk,
    pub(super) resource: Gvr,
    pub(super) subresource: String,
    pub(super) name: String,
    /// That of a Namespace is its own name.
    pub(super) namespace: String,
    pub(super) user: Value,
    pub(super) options: Value,
    pub(super) dry_run: bool,
    pub(super) object: Option<Value>,
    pub(super) old_object: Option<Value>,
    /// The kind has a status that only requests for it may change.
    has_status: bool,
}

/// The user of the request, with the groups that the API server adds by itself.
pub(super) fn user(name: Option<&str>, groups: &[String]) -> Value {
    let mut all: Vec<String> = groups.to_vec();
    let username = name.unwrap_or("kubernetes-admin");
    if name.is_none() && groups.is_empty() {
        all.push("system:masters".to_owned());
    }
    let account = username.strip_prefix("system:serviceaccount:");
    if let Some((namespace, _)) = account.and_then(|account| account.split_once(':')) {
        all.push("system:serviceaccounts".to_owned());
        all.push(format!("system:serviceaccounts:{namespace}"));
    }
    let known = if username == "system:anonymous" {
        "system:unauthenticated"
    } else {
        "system:authenticated"
    };
    if !all.iter().any(|group| group == known) {
        all.push(known.to_owned());
    }
    json!({"username": username, "groups": all})
}

/// How a manifest is called, also when no request can be made of it.
pub(super) fn object_name(manifest: &Manifest, kinds: &Kinds, namespace: &str) -> ObjectName {
    if is_review(manifest) {
        return recorded_name(manifest);
    }
    let gvk = Gvk::new(manifest.text("/apiVersion"), manifest.text("/kind"));
    let is_namespaced = kinds.of_object(&gvk).map(|resource| resource.namespaced);
    let name = match (
        manifest.text("/metadata/name"),
        manifest.text("/metadata/generateName"),
    ) {
        ("", "") => String::new(),
        ("", prefix) => format!("{prefix}*"),
        (name, _) => name.to_owned(),
    };
    ObjectName {
        api_version: manifest.text("/apiVersion").to_owned(),
        kind: gvk.kind,
        namespace: match (is_namespaced, manifest.text("/metadata/namespace")) {
            (Some(false), _) => String::new(),
            (Some(true), "") => namespace.to_owned(),
            (_, named) => named.to_owned(),
        },
        name,
    }
}

fn recorded_name(manifest: &Manifest) -> ObjectName {
    let (group, version) = (
        manifest.text("/request/kind/group"),
        manifest.text("/request/kind/version"),
    );
    ObjectName {
        api_version: if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        },
        kind: manifest.text("/request/kind/kind").to_owned(),
        namespace: manifest.text("/request/namespace").to_owned(),
        name: manifest.text("/request/name").to_owned(),
    }
}

pub(super) fn is_review(manifest: &Manifest) -> bool {
    let (group, _) = split_api_version(manifest.text("/apiVersion"));
    group == "admission.k8s.io" && manifest.text("/kind") == "AdmissionReview"
}

impl Request {
    /// Makes a request of a manifest. `old` finds the object as it was. What cannot be made says why.
    pub(super) fn new(
        manifest: &Manifest,
        wish: &Wish,
        kinds: &Kinds,
        old: &dyn Fn(&Identity) -> Option<Value>,
    ) -> Result<Request, Verdict> {
        if is_review(manifest) {
            return recorded(manifest, kinds);
        }
        let gvk = Gvk::new(manifest.text("/apiVersion"), manifest.text("/kind"));
        let Some(resource) = kinds.of_object(&gvk) else {
            return Err(unknown_kind(manifest));
        };
        check_names(&manifest.object)?;
        let mut object = manifest.object.clone();
        let name = manifest.text("/metadata/name").to_owned();
        let namespace = place(&mut object, resource, &wish.namespace, &name);
        let identity = Identity {
            group: gvk.group.clone(),
            kind: gvk.kind.clone(),
            namespace: if resource.namespaced {
                namespace.clone()
            } else {
                String::new()
            },
            name: name.clone(),
        };
        let mut old_object = old(&identity);
        if let Some(old) = &mut old_object {
            place(old, resource, &wish.namespace, &name);
        }
        let usual = match &*wish.subresource {
            "" if old_object.is_some() => Operation::Update,
            "" => Operation::Create,
            subresource => subresource::usual_operation(subresource),
        };
        let operation = wish.operation.unwrap_or(usual);
        let mut request = Request {
            operation,
            kind: gvk,
            resource: Gvr {
                group: resource.group.clone(),
                version: resource.version.clone(),
                plural: resource.plural.clone(),
            },
            subresource: wish.subresource.clone(),
            name,
            namespace,
            user: wish.user.clone(),
            options: options(operation, wish.dry_run),
            dry_run: wish.dry_run,
            object: Some(object),
            old_object,
            has_status: resource.subresources.iter().any(|name| name == "status"),
        };
        if !request.subresource.is_empty() {
            subresource::narrow(&mut request, resource)?;
        }
        request.fit_operation()?;
        Ok(request)
    }

    /// Which of the two objects a request has depends on what it does.
    fn fit_operation(&mut self) -> Result<(), Verdict> {
        match self.operation {
            Operation::Create | Operation::Connect => self.old_object = None,
            Operation::Delete => {
                let written = self.object.take();
                self.old_object = self.old_object.take().or(written);
            }
            Operation::Update => {
                let (Some(object), Some(old)) = (&mut self.object, &self.old_object) else {
                    return Err(Verdict::Error {
                        message:
                            "an UPDATE needs the object as it was: give it with --old or --objects"
                                .to_owned(),
                    });
                };
                for field in ["uid", "creationTimestamp", "resourceVersion"] {
                    let kept = old.pointer(&format!("/metadata/{field}"));
                    if let (Some(kept), Some(metadata)) = (kept, metadata(object)) {
                        metadata.entry(field).or_insert_with(|| kept.clone());
                    }
                }
            }
        }
        Ok(())
    }

    /// What the API server does to the object between mutating and validating: a name, and whose business the status is.
    pub(super) fn settle(&mut self) {
        let Some(object) = &mut self.object else {
            return;
        };
        let prefix = object
            .pointer("/metadata/generateName")
            .and_then(Value::as_str);
        let prefix = prefix.unwrap_or_default().to_owned();
        if self.operation == Operation::Create && self.name.is_empty() && !prefix.is_empty() {
            self.name = format!("{prefix}{GENERATED}");
            if let Some(metadata) = metadata(object) {
                metadata.insert("name".to_owned(), self.name.clone().into());
            }
        }
        let Some(fields) = object.as_object_mut().filter(|_| self.has_status) else {
            return;
        };
        match (self.operation, &*self.subresource, &self.old_object) {
            (Operation::Create, "", _) => {
                fields.remove("status");
            }
            (Operation::Update, "", Some(old)) => {
                fields.remove("status");
                if let Some(status) = old.get("status") {
                    fields.insert("status".to_owned(), status.clone());
                }
            }
            (Operation::Update, "status", Some(Value::Object(old))) => {
                let status = fields.remove("status");
                *fields = old.clone();
                fields.remove("status");
                fields.extend(status.map(|status| ("status".to_owned(), status)));
            }
            _ => {}
        }
    }

    /// The `request` of an AdmissionReview as this kind of resource, without its objects. Empty fields are left out, as Kubernetes
    /// leaves them out.
    pub(super) fn attributes(&self, kind: &Gvk, resource: &Gvr) -> Map<String, Value> {
        let gvk = |gvk: &Gvk| json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind});
        let gvr =
            |gvr: &Gvr| json!({"group": gvr.group, "version": gvr.version, "resource": gvr.plural});
        let mut fields = Map::new();
        let mut put = |key: &str, value: Value| {
            if value != json!("") {
                fields.insert(key.to_owned(), value);
            }
        };
        put("kind", gvk(kind));
        put("resource", gvr(resource));
        put("subResource", json!(self.subresource));
        put("requestKind", gvk(&self.kind));
        put("requestResource", gvr(&self.resource));
        put("requestSubResource", json!(self.subresource));
        put("name", json!(self.name));
        put("namespace", json!(self.namespace));
        put("operation", json!(self.operation.as_str()));
        put("userInfo", self.user.clone());
        put("dryRun", json!(self.dry_run));
        put("options", self.options.clone());
        fields
    }
}

/// Puts the object where the request is: the namespace it is in, and the label of a namespace. Answers the request's namespace.
fn place(object: &mut Value, resource: &Resource, default: &str, name: &str) -> String {
    let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
    let Some(metadata) = metadata(object) else {
        return String::new();
    };
    if resource.namespaced {
        let named = metadata.get("namespace").and_then(Value::as_str);
        let namespace = named.filter(|named| !named.is_empty()).unwrap_or(default);
        let namespace = namespace.to_owned();
        metadata.insert("namespace".to_owned(), json!(namespace));
        return namespace;
    }
    metadata.remove("namespace");
    if !is_namespace {
        return String::new();
    }
    if !name.is_empty() {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if labels.is_null() {
            *labels = json!({});
        }
        if let Some(labels) = labels.as_object_mut() {
            labels.insert(NAME_LABEL.to_owned(), json!(name));
        }
    }
    name.to_owned()
}

fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    let fields = object.as_object_mut()?;
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    metadata.as_object_mut()
}

fn options(operation: Operation, dry_run: bool) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if let (true, Some(fields)) = (dry_run, options.as_object_mut()) {
        fields.insert("dryRun".to_owned(), json!(["All"]));
    }
    options
}

/// YAML takes `y` and `12` for something else than texts, and the API server does not.
fn check_names(object: &Value) -> Result<(), Verdict> {
    for field in ["name", "namespace", "generateName"] {
        let value = object.pointer(&format!("/metadata/{field}"));
        if value.is_some_and(|value| !value.is_string() && !value.is_null()) {
            let message = format!("metadata.{field} is no text: put it in quotes");
            return Err(Verdict::Error { message });
        }
    }
    match object.get("metadata") {
        None | Some(Value::Object(_) | Value::Null) => Ok(()),
        Some(_) => Err(Verdict::Error {
            message: "metadata must be an object".to_owned(),
        }),
    }
}

fn unknown_kind(manifest: &Manifest) -> Verdict {
    Verdict::Unjudged {
        reason: format!(
            "Kubernetes 1.36 has no {} in {}, so its plural and scope are not known: give the CustomResourceDefinition with -f or --objects",
            manifest.text("/kind"),
            manifest.text("/apiVersion")
        ),
    }
}

/// A request as somebody recorded it. Nothing is added: the API server has done that.
fn recorded(manifest: &Manifest, kinds: &Kinds) -> Result<Request, Verdict> {
    let error = |message: &str| Verdict::Error {
        message: format!("AdmissionReview: {message}"),
    };
    let request = manifest.object.get("request");
    let request = request
        .filter(|request| request.is_object())
        .ok_or_else(|| error("it has no request"))?;
    let text = |pointer: &str| {
        let value = request.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let operation = Operation::parse(&text("/operation"))
        .ok_or_else(|| error("request.operation must be CREATE, UPDATE, DELETE or CONNECT"))?;
    // What was asked for, and not what a webhook of the time was shown of it.
    let part = |asked: &str, shown: &str, field: &str| {
        let base = if request.get(asked).is_some() {
            asked
        } else {
            shown
        };
        text(&format!("/{base}/{field}"))
    };
    let kind = |field: &str| part("requestKind", "kind", field);
    let resource = |field: &str| part("requestResource", "resource", field);
    let resource = Gvr {
        group: resource("group"),
        version: resource("version"),
        plural: resource("resource"),
    };
    if resource.plural.is_empty() {
        return Err(error("request.resource.resource is missing"));
    }
    let field = |key: &str| request.get(key).cloned();
    let object = |key: &str| field(key).filter(Value::is_object);
    let known = kinds.named(&resource.group, &resource.version, &resource.plural);
    let has_status = |known: &Resource| known.subresources.iter().any(|name| name == "status");
    Ok(Request {
        operation,
        kind: Gvk {
            group: kind("group"),
            version: kind("version"),
            kind: kind("kind"),
        },
        subresource: text("/subResource"),
        name: text("/name"),
        namespace: text("/namespace"),
        user: field("userInfo").unwrap_or_else(|| json!({})),
        options: field("options").unwrap_or_default(),
        dry_run: field("dryRun") == Some(Value::Bool(true)),
        object: object("object"),
        old_object: object("oldObject"),
        has_status: known.is_some_and(has_status),
        resource,
    })
}
