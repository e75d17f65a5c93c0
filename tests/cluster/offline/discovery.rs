//! The table of built-in kinds against the discovery of the API server that the tests run on.
//!
//! A line of ours that the API server does not have, or one of its kinds that we lack, would be a wrong verdict.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::ControlPlane;

/// The rows of the table: everything between the quotes.
fn ours() -> BTreeSet<String> {
    let source = include_str!("../../../src/offline/kinds/table.rs");
    let table = source.split('"').nth(1).unwrap();
    let lines = table.lines().map(|line| line.trim_end_matches('\\').trim());
    lines
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_built_in_kinds_are_those_that_the_api_server_serves() {
    let api = ControlPlane::shared().api();
    let mut theirs = BTreeSet::new();
    let groups = api.object("/apis");
    let mut places = vec![("-".to_owned(), "v1".to_owned(), "/api/v1".to_owned())];
    for group in groups["groups"].as_array().unwrap() {
        let name = group["name"].as_str().unwrap().to_owned();
        // Other tests make kinds of their own.
        if name.ends_with("example.com") {
            continue;
        }
        for version in group["versions"].as_array().unwrap() {
            let version = version["version"].as_str().unwrap().to_owned();
            places.push((
                name.clone(),
                version.clone(),
                format!("/apis/{name}/{version}"),
            ));
        }
    }
    for (group, version, path) in places {
        let list = api.object(&path);
        let resources = list["resources"].as_array().unwrap();
        for resource in resources {
            let plural = resource["name"].as_str().unwrap();
            if plural.contains('/') {
                continue;
            }
            theirs.insert(row(&group, &version, plural, resource, resources));
        }
    }
    let ours = ours();
    let missing: Vec<&String> = theirs.difference(&ours).collect();
    let foreign: Vec<&String> = ours.difference(&theirs).collect();
    assert!(
        missing.is_empty() && foreign.is_empty(),
        "missing: {missing:#?}\nforeign: {foreign:#?}"
    );
}

fn row(group: &str, version: &str, plural: &str, resource: &Value, all: &[Value]) -> String {
    let short = resource["shortNames"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let short: Vec<&str> = short.iter().filter_map(Value::as_str).collect();
    let prefix = format!("{plural}/");
    let below: Vec<&str> = all
        .iter()
        .filter_map(|other| other["name"].as_str()?.strip_prefix(&prefix))
        .filter(|name| !name.contains('/'))
        .collect();
    let or_dash = |list: &[&str]| match list {
        [] => "-".to_owned(),
        list => list.join(","),
    };
    let scope = if resource["namespaced"] == true {
        "n"
    } else {
        "c"
    };
    let kind = resource["kind"].as_str().unwrap();
    format!(
        "{group} {version} {plural} {kind} {} {scope} {}",
        or_dash(&short),
        or_dash(&below)
    )
}
