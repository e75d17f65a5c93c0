//! `review` against a real API server: the same hooks, the same requests, and both must say the same.
//!
//! `differential` asks both about generated requests. Here is what both need: how a request is put to the API server, how to `review`,
//! and how its table is read.

/// Generated requests, put to both.
mod differential;
/// The kinds of our table and those that the API server serves.
mod discovery;

use serde_json::Value;

use crate::support::stage::message;
use crate::support::{Answer, Api, Output, Stage};

/// One request, for both.
#[derive(Clone, Debug)]
struct Request {
    operation: &'static str,
    /// The API path of the collection.
    collection: String,
    subresource: &'static str,
    /// What is sent; of a DELETE, what is there.
    object: Value,
    dry_run: bool,
}

/// What was said: whether it is allowed, in which words not, and with which warnings.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    /// The whole sentence of the API server; several for `review`, which shows all of them.
    denials: Vec<String>,
    warnings: Vec<String>,
}

impl Request {
    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn path(&self) -> String {
        let mut path = format!("{}/{}", self.collection, self.name());
        if !self.subresource.is_empty() {
            path.push_str(&format!("/{}", self.subresource));
        }
        path
    }

    fn ask(&self, api: &Api) -> Answer {
        let query = if self.dry_run { "?dryRun=All" } else { "" };
        match self.operation {
            "CREATE" if self.subresource.is_empty() => {
                api.create(&format!("{}{query}", self.collection), &self.object)
            }
            "CREATE" => api.create(&format!("{}{query}", self.path()), &self.object),
            "UPDATE" => api.replace(&format!("{}{query}", self.path()), &self.object),
            "DELETE" => api.delete(&format!("{}{query}", self.path())),
            other => panic!("{other}"),
        }
    }
}

/// Reviews a manifest with the hooks of the stage, in a cluster that is known from this file.
fn review(stage: &Stage<'_>, manifest: &Value, request: &Request, more: &[&str]) -> Output {
    let file = stage.env.write("request.json", manifest.to_string());
    let file = file.to_string_lossy();
    let mut arguments = vec!["review", "-f", &file, "--operation", request.operation];
    if !request.subresource.is_empty() {
        arguments.extend(["--subresource", request.subresource]);
    }
    if request.dry_run {
        arguments.push("--dry-run");
    }
    arguments.extend(more);
    stage.env.run(&arguments)
}

/// What the API server said.
fn heard(answer: &Answer) -> Said {
    let warnings = answer.headers.iter().filter(|(name, _)| name == "warning");
    let warnings = warnings.map(|(_, value)| {
        let quoted = value.strip_prefix("299 - \"").unwrap();
        let text = quoted.strip_suffix('"').unwrap();
        text.replace("\\\"", "\"")
    });
    Said {
        denials: if answer.status < 300 {
            Vec::new()
        } else {
            vec![message(answer)]
        },
        warnings: warnings.collect(),
    }
}

/// What the table of `review` says.
#[track_caller]
fn read(output: &Output) -> Said {
    let mut said = Said {
        denials: Vec::new(),
        warnings: Vec::new(),
    };
    for line in output.stdout.lines() {
        if let Some(warning) = line.strip_prefix("    warning: ") {
            said.warnings.push(warning.to_owned());
            continue;
        }
        let cells: Vec<&str> = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .collect();
        if let [_, _, "denied", webhook, text @ ..] = cells.as_slice() {
            let text = text.join("  ").trim_start().to_owned();
            said.denials.push(match text.contains(" is forbidden: ") {
                true => text,
                false => format!("admission webhook \"{webhook}\" denied the request: {text}"),
            });
        }
    }
    let expected = i32::from(!said.denials.is_empty());
    assert_eq!(output.code, Some(expected), "{}", output.all());
    said
}
