//! One operation against the API server: which calls it takes, what is tried again, and what counts as success.
//!
//! Runs on the thread that works on a hook's run or review. Holds nothing between operations. An error never carries more of the
//! object than kind and name; what the server said is kept, except about Secrets, because servers quote what they refuse.

use std::fmt;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::backoff::Rest;
use super::client::{Client, Method, Request};
use super::discovery::Discovery;
use super::error::Error;
use super::object::Object;
use super::resource::{Resource, query_value, segment};
use crate::jq::{Filter, Input};
use crate::operation::{Change, Existing, Operation, Propagation, Target, with_version};

/// How often a change is tried when others change the object at the same time, and the pauses between; as in the original.
const ATTEMPTS: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const PAUSE_FACTOR: u32 = 5;

/// A deleted object is looked for this often, and for so long; as in the original.
const DELETED_PACE: Duration = Duration::from_secs(1);
const DELETED_LIMIT: Duration = Duration::from_secs(20);

/// LIMIT: how often a call is repeated because the server asks for it with `Retry-After`; as client-go does.
const REPEATS: usize = 10;
/// LIMIT: the longest such pause. A server under pressure says one second.
const LONGEST_REPEAT_PAUSE: Duration = Duration::from_secs(30);

/// Why an operation failed.
#[derive(Debug)]
pub(super) enum Problem {
    Api(Error),
    /// The same about a Secret.
    ApiAboutSecret(Error),
    /// A kind with namespaces and an operation without.
    NoNamespace,
    /// The filter ended with an error. Its text may quote the object.
    Filter,
    /// What the filter made is no object.
    NotAnObject,
    /// The answer is not what the server says about an object.
    Unreadable,
    /// After `DELETED_LIMIT`.
    StillThere,
    /// Every attempt met a change by somebody else.
    Conflict,
    /// The time of the run is over.
    Late,
}

impl Problem {
    pub(super) fn is_stop(&self) -> bool {
        matches!(
            self,
            Problem::Api(Error::Stopped) | Problem::ApiAboutSecret(Error::Stopped)
        )
    }

    fn is_missing(&self) -> bool {
        match self {
            Problem::Api(error) => error.is_not_found(),
            Problem::NoNamespace => true,
            _ => false,
        }
    }

    /// There was no answer: the next operation has little hope either.
    pub(super) fn is_silence(&self) -> bool {
        matches!(
            self,
            Problem::Api(Error::Transport { .. })
                | Problem::ApiAboutSecret(Error::Transport { .. })
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Api(error) => write!(out, "{error}"),
            Problem::ApiAboutSecret(Error::Status {
                call, code, reason, ..
            }) => write!(
                out,
                "{call}: {code} {reason} (what the server says about a Secret is not shown)"
            ),
            Problem::ApiAboutSecret(error) => write!(out, "{error}"),
            Problem::NoNamespace => out.write_str("objects of this kind have a namespace; name it"),
            Problem::Filter => out.write_str(
                "the jqFilter failed on the object; try it with jq, the object is not shown here",
            ),
            Problem::NotAnObject => out
                .write_str("the jqFilter must make one object with kind, and made something else"),
            Problem::Unreadable => out.write_str(
                "the answer of the server is neither the object nor a Status, and nobody knows what became of it; look at the object",
            ),
            Problem::StillThere => write!(
                out,
                "context deadline exceeded: the object is still there after {} s; does a finalizer hold it?",
                DELETED_LIMIT.as_secs()
            ),
            Problem::Conflict => write!(
                out,
                "the object was changed by others during each of {ATTEMPTS} attempts"
            ),
            Problem::Late => out.write_str("there was no time left for it"),
        }
    }
}

/// What carrying out an operation needs.
#[derive(Clone, Copy)]
pub(super) struct Hands<'a> {
    pub(super) client: &'a Client,
    pub(super) discovery: &'a Discovery,
    pub(super) rest: &'a Rest,
    pub(super) until: Option<Instant>,
}

/// An object that an operation is about, found on the server.
struct Place<'a> {
    hands: Hands<'a>,
    resource: Resource,
    target: &'a Target,
}

impl Hands<'_> {
    pub(super) fn carry_out(&self, operation: &Operation) -> Result<(), Problem> {
        if self.until.is_some_and(|until| until <= Instant::now()) {
            return Err(Problem::Late);
        }
        let target = &operation.target;
        let resource = self
            .discovery
            .resolve(&target.kind, target.api_version.as_deref())
            .map_err(Problem::Api)?;
        let place = Place {
            hands: *self,
            resource,
            target,
        };
        let subresource = operation.subresource.as_deref();
        let done = match &operation.change {
            Change::Create { object, existing } => place.create(object, *existing),
            Change::Delete(propagation) => place.delete(*propagation),
            Change::Filter(filter) => place.filter(filter, subresource),
            Change::Merge(patch) => {
                place.patch("application/merge-patch+json", patch, subresource, "")
            }
            Change::Json(patch) => {
                place.patch("application/json-patch+json", patch, subresource, "")
            }
            Change::Apply {
                object,
                field_manager,
                force,
            } => {
                let query = format!("?fieldManager={}&force={force}", query_value(field_manager));
                place.patch("application/apply-patch+yaml", object, subresource, &query)
            }
        };
        match done {
            Err(problem) if problem.is_missing() && operation.ignore_missing_object => Ok(()),
            Err(Problem::Api(error)) if place.resource.kind == "Secret" => {
                Err(Problem::ApiAboutSecret(error))
            }
            done => done,
        }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Problem {
        Problem::Api(error)
    }
}

impl Place<'_> {
    fn create(&self, object: &str, existing: Existing) -> Result<(), Problem> {
        let collection = self.path(None, None)?;
        let mut pauses = Pauses::new();
        loop {
            let refusal = match self.send(Method::Post, &collection, JSON, object) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            match existing {
                // Without a name it cannot be there: another object got the name that the server thought of.
                Existing::Replace
                    if refusal.is_already_exists() && !self.target.name.is_empty() => {}
                Existing::Keep if refusal.is_already_exists() => return Ok(()),
                _ => return Err(refusal.into()),
            }
            match self.replace(object, &mut pauses) {
                // Deleted between the two: then it can be created after all.
                Err(Problem::Api(error))
                    if error.is_not_found() && pauses.next(self.hands.rest) => {}
                end => return end,
            }
        }
    }

    /// Puts an object in the place of the one that is there.
    fn replace(&self, object: &str, pauses: &mut Pauses) -> Result<(), Problem> {
        let path = self.path(Some(&self.target.name), None)?;
        loop {
            let current = self.ask(Method::Get, &path)?;
            // Without a version the PUT would overwrite whatever others wrote meanwhile.
            let version = match Object::read(&current) {
                Ok(object) if !object.version.is_empty() => object.version.into_owned(),
                _ => return Err(Problem::Unreadable),
            };
            let object = with_version(object, &version).map_err(|_| Problem::NotAnObject)?;
            match self.send(Method::Put, &path, JSON, &object) {
                Ok(_) => return Ok(()),
                Err(error) if !error.is_conflict() => return Err(error.into()),
                Err(_) if pauses.next(self.hands.rest) => {}
                Err(_) => return Err(Problem::Conflict),
            }
        }
    }

    fn delete(&self, propagation: Propagation) -> Result<(), Problem> {
        let path = match self.path(Some(&self.target.name), None) {
            Ok(path) => path,
            Err(Problem::NoNamespace) => {
                // The original asks for an object that cannot be, and takes the 404 for success.
                log::warn!(kind = self.target.kind.as_str(), name = self.target.name.as_str();
                    "a hook deletes an object without naming its namespace: nothing is deleted");
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        let policy = match propagation {
            Propagation::Foreground => "Foreground",
            Propagation::Background => "Background",
            Propagation::Orphan => "Orphan",
        };
        let options = format!(
            r#"{{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"{policy}"}}"#
        );
        let answer = match self.send(Method::Delete, &path, JSON, &options) {
            Ok(answer) => answer,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if propagation != Propagation::Foreground {
            return Ok(());
        }
        match deleted(&answer, &self.target.name)? {
            Deleted::Gone => Ok(()),
            Deleted::Going(uid) => self.wait_until_gone(&path, &uid),
        }
    }

    /// Another object of the same name is another object.
    fn wait_until_gone(&self, path: &str, uid: &str) -> Result<(), Problem> {
        let limit = Instant::now() + DELETED_LIMIT;
        let limit = self.hands.until.map_or(limit, |until| until.min(limit));
        loop {
            self.hands.rest.sleep(DELETED_PACE);
            match self.ask(Method::Get, path) {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error.into()),
                Ok(answer) => match deleted(&answer, &self.target.name)? {
                    Deleted::Going(found) if found == uid => {}
                    Deleted::Going(_) => return Ok(()),
                    // That an object is not there is said by the code 404 alone.
                    Deleted::Gone => return Err(Problem::Unreadable),
                },
            }
            if Instant::now() >= limit {
                return Err(Problem::StillThere);
            }
        }
    }

    fn filter(&self, filter: &Filter, subresource: Option<&str>) -> Result<(), Problem> {
        let path = self.path(Some(&self.target.name), None)?;
        let changed_path = self.path(Some(&self.target.name), subresource)?;
        let mut pauses = Pauses::new();
        loop {
            let current = self.ask(Method::Get, &path)?;
            let input = Input::read(&current).map_err(|_| Problem::Filter)?;
            let changed = filter.apply_to(&input).map_err(|_| Problem::Filter)?;
            if !changed.get("kind").is_some_and(Value::is_string) {
                return Err(Problem::NotAnObject);
            }
            if serde_json::from_slice::<Value>(&current).is_ok_and(|current| current == changed) {
                return Ok(());
            }
            match self.send(Method::Put, &changed_path, JSON, &changed.to_string()) {
                Ok(_) => return Ok(()),
                Err(error) if !error.is_conflict() => return Err(error.into()),
                Err(_) if pauses.next(self.hands.rest) => {}
                Err(_) => return Err(Problem::Conflict),
            }
        }
    }

    fn patch(
        &self,
        content_type: &str,
        patch: &str,
        subresource: Option<&str>,
        query: &str,
    ) -> Result<(), Problem> {
        let mut path = self.path(Some(&self.target.name), subresource)?;
        path.push_str(query);
        self.send(Method::Patch, &path, content_type, patch)?;
        Ok(())
    }

    /// The path of all objects, of one, or of a part of one.
    fn path(&self, name: Option<&str>, subresource: Option<&str>) -> Result<String, Problem> {
        let namespace = self.target.namespace.as_str();
        if self.resource.namespaced && namespace.is_empty() {
            return Err(Problem::NoNamespace);
        }
        let mut path = self.resource.path(Some(namespace), name)?;
        if let Some(subresource) = subresource {
            path.push('/');
            // The original's documents write it with a slash.
            path.push_str(&segment(
                subresource.strip_prefix('/').unwrap_or(subresource),
            )?);
        }
        Ok(path)
    }

    fn ask(&self, method: Method, path: &str) -> Result<Vec<u8>, Error> {
        self.call(&Request::new(method, path))
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> Result<Vec<u8>, Error> {
        self.call(&Request {
            body: Some((content_type, body.as_bytes())),
            ..Request::new(method, path)
        })
    }

    /// Makes a call, again if the server asks for that.
    fn call(&self, request: &Request<'_>) -> Result<Vec<u8>, Error> {
        let Hands { until, rest, .. } = self.hands;
        let request = Request { until, ..*request };
        let mut repeats = 0;
        loop {
            let error = match self.hands.client.send(&request) {
                Ok(answer) => return Ok(answer.body),
                Err(error) => error,
            };
            let Some(pause) = error.retry_after().filter(|_| error.retryable()) else {
                return Err(error);
            };
            repeats += 1;
            let too_late = until.is_some_and(|until| Instant::now() + pause >= until);
            if repeats > REPEATS || too_late || pause > LONGEST_REPEAT_PAUSE {
                return Err(error);
            }
            rest.sleep(pause);
        }
    }
}

const JSON: &str = "application/json";

/// The pauses between attempts that met a conflict.
struct Pauses {
    left: usize,
    next: Duration,
}

impl Pauses {
    fn new() -> Pauses {
        Pauses {
            left: ATTEMPTS - 1,
            next: FIRST_PAUSE,
        }
    }

    /// False when there have been enough.
    fn next(&mut self, rest: &Rest) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        rest.sleep(self.next);
        self.next *= PAUSE_FACTOR;
        true
    }
}

/// What the answer to a DELETE, or a later look, says.
enum Deleted {
    Gone,
    /// It has this `uid`.
    Going(String),
}

/// A `Status` says that the object is gone; the object itself that something still holds it. Anything else says nothing.
fn deleted(answer: &[u8], name: &str) -> Result<Deleted, Problem> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(default)]
        kind: String,
        #[serde(default)]
        metadata: Named,
    }
    #[derive(Deserialize, Default)]
    struct Named {
        #[serde(default)]
        name: String,
        #[serde(default)]
        uid: String,
    }
    match serde_json::from_slice::<Answer>(answer) {
        Ok(answer) if answer.kind == "Status" => Ok(Deleted::Gone),
        Ok(answer) if !answer.kind.is_empty() && answer.metadata.name == name => {
            Ok(Deleted::Going(answer.metadata.uid))
        }
        _ => Err(Problem::Unreadable),
    }
}
