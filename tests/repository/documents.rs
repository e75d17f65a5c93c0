//! What the documents claim about the repository: links, scripts, flags and dependencies that they name must exist, and what
//! exists must be named.

use std::path::{Component, Path, PathBuf};

use super::{document, files_below, none_wrong};
use crate::support::{Env, repository};

/// The documents that must be there.
const REQUIRED: &[&str] = &["README.md", "src/ARCHITECTURE.md"];

/// Folders whose paths in a document are meant literally. A path below `hooks` may be one that the reader is to write.
const LITERAL: &[&str] = &["scripts/", "k8s/", "src/", "tests/", ".ci/"];

/// Every document with its path.
fn documents() -> Vec<(String, String)> {
    for path in REQUIRED {
        document(path);
    }
    files_below(".")
        .into_iter()
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path.clone(), file.text()))
        .collect()
}

/// The text without what stands between fences, and the blocks that are shell.
fn split_fences(text: &str) -> (String, Vec<String>) {
    let (mut prose, mut blocks) = (String::new(), Vec::new());
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(kind), None) => {
                fence = Some(kind.trim());
                if is_shell(kind.trim()) {
                    blocks.push(String::new());
                }
            }
            (None, Some(kind)) => {
                if let Some(block) = blocks.last_mut().filter(|_| is_shell(kind)) {
                    block.push_str(line);
                    block.push('\n');
                }
            }
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
        }
    }
    (prose, blocks)
}

fn is_shell(kind: &str) -> bool {
    matches!(kind, "sh" | "bash" | "shell" | "console")
}

/// The targets of `[text](target)`.
fn links(prose: &str) -> Vec<String> {
    let after = prose.split("](").skip(1);
    after
        .filter_map(|rest| rest.split(')').next())
        .map(|target| {
            target
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

/// The anchor that a heading gets: lower case, punctuation gone, spaces as dashes.
fn anchors(text: &str) -> Vec<String> {
    let (prose, _) = split_fences(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                _ => letter.is_alphanumeric().then_some(letter),
            });
            kept.collect()
        })
        .collect()
}

/// Resolves `a/../b` without asking the file system.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// Words that look like paths and flags, without the punctuation around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let separates = |letter: char| letter.is_whitespace() || "`'\"()<>[]{}|;,=".contains(letter);
    let words = text.split(separates);
    words.map(|word| word.trim_end_matches(['.', ':', '/', '*']))
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let folder = Path::new(&path).parent().unwrap().to_owned();
        for link in links(&split_fences(&text).0) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if target.is_empty() {
                PathBuf::from(&path)
            } else {
                normal(&folder.join(target))
            };
            let found = repository().join(&target);
            if !found.exists() {
                wrong.push(format!("{path}: {link} leads to nothing"));
            } else if !anchor.is_empty() && target.extension().is_some_and(|end| end == "md") {
                let text = document(&target.to_string_lossy());
                if !anchors(&text).iter().any(|known| known == anchor) {
                    wrong.push(format!("{path}: {link} has no such heading"));
                }
            }
        }
    }
    none_wrong("links in documents lead to something", &wrong);
}

#[test]
fn every_script_and_file_that_a_document_names_exists() {
    let mut wrong = Vec::new();
    for (path, text) in documents() {
        let (prose, blocks) = split_fences(&text);
        // In prose only what is set as code is a path.
        let spans: String = prose
            .split('`')
            .skip(1)
            .step_by(2)
            .fold(String::new(), |all, span| all + span + "\n");
        for word in words(&format!("{spans}{}", blocks.concat())) {
            let word = word.trim_start_matches("./");
            let is_literal = LITERAL.iter().any(|folder| word.starts_with(folder));
            let has_hole = word.contains(['*', '…', '$', 'N']) && !repository().join(word).exists();
            if is_literal && !has_hole && !repository().join(word).exists() {
                wrong.push(format!("{path}: {word} does not exist"));
            }
        }
        for line in blocks.iter().flat_map(|block| block.lines()) {
            let command = line.trim_start_matches("$ ").split_whitespace().next();
            let script = command.unwrap_or_default().trim_start_matches("./");
            let files = files_below(script);
            if script.starts_with("scripts/") && !files.iter().all(|file| file.executable) {
                wrong.push(format!("{path}: {script} cannot be run"));
            }
        }
    }
    none_wrong("what documents name exists", &wrong);
}

/// The names of flags in the table of `settings`: the line after `Flag {`.
fn flags() -> Vec<String> {
    let mut flags = Vec::new();
    for file in files_below("src") {
        if !file.path.starts_with("src/settings") {
            continue;
        }
        let text = file.text();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let starts = line.ends_with("Flag {") && !line.contains("struct");
            let name = lines.clone().next().filter(|_| starts);
            if let Some(name) = name.and_then(|next| next.strip_prefix("name: \"")) {
                flags.push(name.trim_end_matches(['"', ',']).to_owned());
            }
        }
    }
    flags
}

#[test]
fn every_flag_is_documented_and_every_documented_flag_exists() {
    let flags = flags();
    assert!(
        flags.len() > 20,
        "the table of flags was not found: {flags:?}"
    );
    let env = Env::new();
    let commands = [
        "start", "review", "test", "resource", "queue", "hook", "config", "raw",
    ];
    let mut help = env.run(&["help"]).ok();
    for command in commands {
        help.push_str(&env.run(&[command, "--help"]).ok());
    }
    let known: Vec<&str> = words(&help)
        .filter_map(|word| word.strip_prefix("--"))
        .collect();
    let mut wrong = Vec::new();
    for flag in &flags {
        if !known.contains(&flag.as_str()) {
            wrong.push(format!("--{flag} is not in `start --help`"));
        }
    }
    // A line about our program names only flags that it has.
    for (path, text) in documents() {
        for line in split_fences(&text).1.iter().flat_map(|block| block.lines()) {
            let Some((_, arguments)) = line.split_once("shell-operator ") else {
                continue;
            };
            let named = words(arguments).filter_map(|word| word.strip_prefix("--"));
            for flag in named.filter(|flag| !flag.is_empty() && !known.contains(flag)) {
                wrong.push(format!("{path}: --{flag} does not exist"));
            }
        }
    }
    none_wrong("flags and their documents agree", &wrong);
}

#[test]
fn every_dependency_has_its_reason_in_the_map() {
    let (manifest, map) = (document("Cargo.toml"), document("src/ARCHITECTURE.md"));
    let mut wrong = Vec::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let name = line.split_once(" = ").map(|(name, _)| name.trim());
        let unargued =
            |name: &&str| section == "[dependencies]" && !map.contains(&format!("`{name}`"));
        wrong.extend(name.filter(unargued).map(str::to_owned));
    }
    none_wrong("a dependency is argued for in src/ARCHITECTURE.md", &wrong);
}

#[test]
fn documents_are_read_as_they_are_meant() {
    let text =
        "# A `b` c!\nsee [x](y.md#z \"t\")\n```sh\nscripts/test quick\n```\n```yaml\n[n](m)\n```\n";
    let (prose, blocks) = split_fences(text);
    assert_eq!(links(&prose), ["y.md#z"]);
    assert_eq!(blocks, ["scripts/test quick\n"]);
    assert_eq!(anchors(text), ["a-b-c"]);
    assert_eq!(normal(Path::new("src/../k8s/./a")), Path::new("k8s/a"));
    let found: Vec<_> = words("run `scripts/x`, --a=b.").collect();
    assert!(found.contains(&"scripts/x") && found.contains(&"--a") && found.contains(&"b"));
}
