//! The reference of configuration keys in `hooks/README.md` against the schema in `src/hook/schema.rs`: every key is in its table,
//! no table has another one, and what is required is called so.
//!
//! A table is marked by the name of its schema, `<!-- keys: KUBERNETES -->`. Objects inside it are written out with dots, and lists
//! of objects with `[]`, down to values and to schemas that have a table of their own.

use std::collections::{BTreeMap, BTreeSet};

use super::{document, none_wrong};

/// A key with what belongs to it: whether it is required, and the name of its schema.
type Keys = Vec<(String, bool, String)>;

/// The schemas that are objects, by name, and what lists are lists of.
struct Schemas {
    objects: BTreeMap<String, Keys>,
    lists: BTreeMap<String, String>,
    /// Schemas of a value that may be an object or something shorter, and that object.
    choices: BTreeMap<String, String>,
}

impl Schemas {
    fn read(source: &str) -> Schemas {
        let mut schemas = Schemas {
            objects: BTreeMap::new(),
            lists: BTreeMap::new(),
            choices: BTreeMap::new(),
        };
        for definition in source.split("static ").skip(1) {
            let Some((name, rest)) = definition.split_once(": Schema =") else {
                continue;
            };
            let body = rest.split(';').next().unwrap_or_default();
            let name = name.to_owned();
            if let Some(list) = body.trim_start().strip_prefix("list(") {
                let items = list.split('&').nth(1).unwrap_or_default();
                schemas.lists.insert(name, identifier(items));
            } else if let Some(choice) = body.trim_start().strip_prefix("Schema::Either(") {
                let object = choice.split('&').nth(2).unwrap_or_default();
                schemas.choices.insert(name, identifier(object));
            } else if body.contains("&[") && !body.contains("Enum") {
                schemas.objects.insert(name, keys(body));
            }
        }
        schemas
    }

    /// Every key of an object, those of objects inside it too.
    fn paths(&self, name: &str, tables: &BTreeSet<String>) -> BTreeMap<String, bool> {
        let mut found = BTreeMap::new();
        for (key, required, schema) in &self.objects[name] {
            let (item, mark) = match self.lists.get(schema) {
                Some(item) => (item, "[]"),
                None => (schema, ""),
            };
            if self.objects.contains_key(item) && !tables.contains(item) {
                for (below, needed) in self.paths(item, tables) {
                    // An object that may be absent needs nothing; an item of a list is there.
                    let needed = needed && (*required || mark == "[]");
                    found.insert(format!("{key}{mark}.{below}"), needed);
                }
            } else {
                found.insert(key.clone(), *required);
            }
        }
        found
    }
}

/// The fields of an object, which are `required("name", &SCHEMA)` or `optional(...)`.
fn keys(body: &str) -> Keys {
    let mut keys = Keys::new();
    for (number, part) in body.split("(\"").enumerate().skip(1) {
        let before = body.split("(\"").nth(number - 1).unwrap_or_default();
        let (key, rest) = part.split_once('"').unwrap_or_default();
        let schema = rest.split('&').nth(1).unwrap_or_default();
        keys.push((
            key.to_owned(),
            before.ends_with("required"),
            identifier(schema),
        ));
    }
    keys
}

fn identifier(text: &str) -> String {
    let is_part = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    text.chars().take_while(is_part).collect()
}

/// The marked tables: for each key, whether its default is `required`.
fn tables(readme: &str) -> BTreeMap<String, BTreeMap<String, bool>> {
    let mut tables = BTreeMap::new();
    for marked in readme.split("<!-- keys: ").skip(1) {
        let (name, rest) = marked.split_once(" -->\n").unwrap();
        let rows = rest.lines().take_while(|line| line.starts_with('|'));
        let keys = rows.skip(2).map(|row| {
            let mut cells = row.split('|').skip(1).map(str::trim);
            let key = cells.next().unwrap_or_default().trim_matches('`');
            (key.to_owned(), cells.next() == Some("required"))
        });
        tables.insert(name.to_owned(), keys.collect());
    }
    tables
}

#[test]
fn every_key_of_hook_configuration_is_documented_and_every_documented_key_exists() {
    let schemas = Schemas::read(&document("src/hook/schema.rs"));
    let tables = tables(&document("hooks/README.md"));
    let names: BTreeSet<String> = tables.keys().cloned().collect();
    let mut wrong = Vec::new();
    for (name, documented) in &tables {
        if !schemas.objects.contains_key(name) {
            wrong.push(format!("there is no schema {name}"));
            continue;
        }
        // A section with a table of its own is one row of the table above it.
        let known = schemas.paths(name, &names);
        for (key, required) in &known {
            match documented.get(key) {
                None => wrong.push(format!("{name}: {key} is not documented")),
                Some(said) if said != required => {
                    wrong.push(format!("{name}: {key} is required: {required}"));
                }
                Some(_) => {}
            }
        }
        let unknown = documented.keys().filter(|key| !known.contains_key(*key));
        wrong.extend(unknown.map(|key| format!("{name}: there is no key {key}")));
    }
    for object in schemas.choices.values() {
        if schemas.objects.contains_key(object) && !names.contains(object) {
            wrong.push(format!("{object} has no table"));
        }
    }
    none_wrong(
        "the keys in hooks/README.md are those of the schema",
        &wrong,
    );
    for root in ["V0", "V1"] {
        assert!(names.contains(root), "{root} has no table");
    }
}

#[test]
fn a_schema_is_read_as_it_is_meant() {
    let source = "static A: Schema = object(&[\n  required(\"x\", &STRING),\n  optional(\"y\", &BS),\n]);\n\
                  static BS: Schema = list(0, &B);\nstatic B: Schema = sized(&[optional(\"z\", &C)], 1, 2);\n\
                  static E: Schema = Schema::Enum(&[\"a\"]);\n\
                  static C: Schema = object(&[required(\"w\", &STRING)]);\n";
    let schemas = Schemas::read(source);
    let paths = |tables: &[&str]| {
        let tables = tables.iter().map(|name| (*name).to_owned()).collect();
        let found = schemas.paths("A", &tables);
        found
            .into_iter()
            .map(|(key, required)| format!("{key} {required}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(&["A"]), ["x true", "y[].z.w false"]);
    assert_eq!(paths(&["A", "C"]), ["x true", "y[].z false"]);
    assert_eq!(paths(&["A", "B"]), ["x true", "y false"]);
    let page =
        "<!-- keys: A -->\n| Key | D |\n|---|---|\n| `x` | required |\n| `y` | 1 |\n\n| `z` |";
    let read: Vec<(String, bool)> = tables(page)["A"].clone().into_iter().collect();
    assert_eq!(read, [("x".to_owned(), true), ("y".to_owned(), false)]);
}
