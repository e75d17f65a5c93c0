//! Who may import whom, and who may do what to the world outside.
//!
//! Both tables are read from `src/ARCHITECTURE.md`, so that the document and the check cannot drift apart.

use std::collections::BTreeMap;

use super::source::{code, line_of, places};
use super::{File, document, none_wrong, shipped_sources};

const MAP: &str = "src/ARCHITECTURE.md";

/// How each capability of the map looks in source.
const CAPABILITIES: &[(&str, &[&str])] = &[
    ("start a process", &["Command::new", "CommandExt"]),
    (
        "dial out",
        &[
            "TcpStream::connect",
            "TcpStream::connect_timeout",
            "UdpSocket",
            "ureq::",
        ],
    ),
    ("dial a unix socket", &["UnixStream::connect"]),
    ("listen", &["TcpListener", "UnixListener"]),
    (
        "make a thread",
        &[
            "thread::spawn",
            "thread::Builder",
            "thread::scope",
            "thread::{Builder",
        ],
    ),
    (
        "read the environment",
        &[
            "env::var",
            "env::var_os",
            "env::vars",
            "env::vars_os",
            "env::args",
            "env::args_os",
        ],
    ),
    ("exit", &["process::exit", "process::abort"]),
    ("unsafe", &["unsafe"]),
];

/// What we ship, with the name of its room.
fn sources() -> Vec<(String, File)> {
    shipped_sources()
        .into_iter()
        .map(|file| {
            let below = file.path.trim_start_matches("src/").trim_end_matches(".rs");
            let room = below.split('/').next().unwrap_or_default().to_owned();
            (room, file)
        })
        .collect()
}

/// What a room may import, as written in the map.
enum Allowed {
    /// Rooms, or one module of a room as `room::module`.
    Only(Vec<String>),
    AllBut(Vec<String>),
}

impl Allowed {
    fn permits(&self, path: &str) -> bool {
        let room = path.split("::").next().unwrap_or_default();
        match self {
            Allowed::Only(rooms) => rooms.iter().any(|allowed| {
                allowed == room || path == allowed || path.starts_with(&format!("{allowed}::"))
            }),
            Allowed::AllBut(rooms) => !rooms.iter().any(|refused| refused == room),
        }
    }
}

/// The rows of the table under a heading of the map, two cells each.
fn table_under(heading: &str) -> Vec<(String, String)> {
    let map = document(MAP);
    let section = map.split(&format!("\n## {heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("{MAP} has no heading `## {heading}`"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    // The first row names the columns, the second is a line of dashes.
    rows.skip(2)
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split('|').collect();
            let [left, right] = cells[..] else {
                panic!("a row with two cells was expected in {MAP}: {row}");
            };
            (left.trim().to_owned(), right.trim().to_owned())
        })
        .collect()
}

/// What each room may import: a row per room, or per several rooms that are alike.
fn import_table() -> BTreeMap<String, Allowed> {
    let mut table = BTreeMap::new();
    for (rooms, allowed) in table_under("Imports") {
        for room in code_words(&rooms) {
            // What stands in brackets explains; it allows nothing.
            let names = code_words(&without_brackets(&allowed));
            let entry = if allowed.starts_with("everything") {
                Allowed::AllBut(names)
            } else {
                Allowed::Only(names)
            };
            assert!(
                table.insert(room.clone(), entry).is_none(),
                "{room} has two rows"
            );
        }
    }
    table
}

/// The words in backticks.
fn code_words(text: &str) -> Vec<String> {
    let inside = text.split('`').skip(1).step_by(2);
    inside.map(str::to_owned).collect()
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0;
    text.chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(');
            let keep = depth == 0;
            depth -= i32::from(*letter == ')');
            keep
        })
        .collect()
}

/// The paths below the crate that a source uses, with the place of each.
fn imports(path: &str, code: &str, rooms: &[String]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // From a room's inner file two steps up lead to the crate, from the others one.
    let inner = path.matches('/').count() == 2 && !path.ends_with("/mod.rs");
    let up = if inner { "super::super::" } else { "super::" };
    for root in ["crate::", up] {
        for at in places(code, root) {
            for name in names_after(&code[at + root.len()..]) {
                let room = name.split("::").next().unwrap_or_default();
                // One's own items have no room in front of them.
                if rooms.iter().any(|known| known == room) {
                    found.push((at, name));
                }
            }
        }
    }
    if path == "src/main.rs" {
        for room in rooms {
            for at in places(code, &format!("{room}::")) {
                found.push((at, room.clone()));
            }
        }
    }
    found
}

/// The paths after `crate::`: one, or those of a group in braces.
fn names_after(rest: &str) -> Vec<String> {
    let is_path = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    let Some(group) = rest.strip_prefix('{') else {
        let path: String = rest.chars().take_while(|letter| is_path(*letter)).collect();
        return vec![path];
    };
    let (mut depth, mut names, mut current) = (0, Vec::new(), String::new());
    for letter in group.chars() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(std::mem::take(&mut current)),
            _ if depth == 0 && is_path(letter) => current.push(letter),
            _ => {}
        }
    }
    names.push(current);
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn every_import_is_in_the_table_of_the_map() {
    let table = import_table();
    let sources = sources();
    let mut rooms: Vec<String> = sources.iter().map(|(room, _)| room.clone()).collect();
    rooms.dedup();
    let mut wrong = Vec::new();
    for room in rooms.iter().filter(|room| !table.contains_key(*room)) {
        wrong.push(format!("{room}: has no row in {MAP}"));
    }
    for room in table.keys().filter(|room| !rooms.contains(room)) {
        wrong.push(format!("{room}: has a row in {MAP} and no source"));
    }
    for (room, file) in &sources {
        let code = code(&file.text());
        for (at, path) in imports(&file.path, &code, &rooms) {
            let own = path.split("::").next() == Some(room);
            let permitted = table.get(room).is_none_or(|allowed| allowed.permits(&path));
            if !own && !permitted {
                let line = line_of(&code, at);
                wrong.push(format!(
                    "{}:{line}: {room} may not import {path}",
                    file.path
                ));
            }
        }
    }
    none_wrong("imports follow the table in src/ARCHITECTURE.md", &wrong);
}

#[test]
fn every_capability_stays_in_its_room() {
    let mut wrong = Vec::new();
    let table = table_under("Capabilities");
    for (name, _) in CAPABILITIES {
        if !table.iter().any(|(written, _)| written == name) {
            wrong.push(format!("{MAP} does not say who may: {name}"));
        }
    }
    let sources = sources();
    for (name, rooms) in table {
        let known = CAPABILITIES.iter().find(|(known, _)| *known == name);
        let (_, patterns) =
            known.unwrap_or_else(|| panic!("how does source look that may {name}?"));
        let rooms = code_words(&without_brackets(&rooms));
        for (_, file) in sources.iter().filter(|(room, _)| !rooms.contains(room)) {
            let code = code(&file.text());
            for at in patterns.iter().flat_map(|pattern| places(&code, pattern)) {
                let line = line_of(&code, at);
                wrong.push(format!("{}:{line}: may not {name}", file.path));
            }
        }
    }
    none_wrong("capabilities are used only by their rooms", &wrong);
}

#[test]
fn the_table_is_read_as_it_is_meant() {
    assert_eq!(
        code_words(&without_brackets(
            "`kube` (never `client`), `monitor::overlay`"
        )),
        ["kube", "monitor::overlay"]
    );
    let some = Allowed::Only(vec!["jq".to_owned(), "monitor::overlay".to_owned()]);
    assert!(some.permits("jq::Filter") && some.permits("monitor::overlay::Overlay"));
    assert!(!some.permits("monitor::store") && !some.permits("jqx"));
    let most = Allowed::AllBut(vec!["main".to_owned()]);
    assert!(most.permits("serve::tls") && !most.permits("main"));
    assert_eq!(
        names_after("{hook::{self, Hook}, jq, kube::Error};"),
        ["hook::", "jq", "kube::Error"]
    );
    assert_eq!(names_after("message::Event;"), ["message::Event"]);
    let rooms = ["jq".to_owned(), "hook".to_owned()];
    let found = imports(
        "src/hook/config.rs",
        "super::super::jq::x super::jq",
        &rooms,
    );
    assert_eq!(found, [(0, "jq::x".to_owned())]);
}
