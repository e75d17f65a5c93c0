//! Reads the repository and checks the rules that no compiler knows: what `src/ARCHITECTURE.md` promises about the source, what
//! the documents say about the repository, and how files look.
//!
//! A missing README or ARCHITECTURE is a failure and not a reason to skip.

/// What README and the other documents claim.
mod documents;
/// Headers, sizes, marks, scripts, hooks, the lock file.
mod files;
/// Imports and capabilities, as the table in `src/ARCHITECTURE.md` allows them.
mod imports;
/// The keys of hook configuration, as documented and as in the schema.
mod reference;
/// Rust source without comments, texts and tests.
mod source;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::repository;

/// One file of the repository.
#[derive(Clone)]
struct File {
    /// Relative to the top, with slashes.
    path: String,
    bytes: Vec<u8>,
    executable: bool,
}

impl File {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn has_shebang(&self) -> bool {
        self.bytes.starts_with(b"#!")
    }
}

/// Every file below a folder of the repository, or that file itself, in order of its path.
fn files_below(folder: &str) -> Vec<File> {
    let mut found = Vec::new();
    collect(&repository().join(folder), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn collect(path: &Path, found: &mut Vec<File>) {
    let Ok(about) = fs::symlink_metadata(path) else {
        return;
    };
    if about.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            // What git does not keep. Beside them lies nothing that we did not write.
            if ![".git", "target", "__pycache__"].contains(&&*entry.file_name().to_string_lossy()) {
                collect(&entry.path(), found);
            }
        }
    } else if about.is_file() {
        let name = path.strip_prefix(repository()).unwrap();
        found.push(File {
            path: name.to_string_lossy().into_owned(),
            bytes: fs::read(path).unwrap(),
            executable: about.permissions().mode() & 0o111 != 0,
        });
    }
}

/// The source files that are compiled into the program: those which a parent declares under `#[cfg(test)]` are not.
fn shipped_sources() -> Vec<File> {
    let mut files = files_below("src");
    files.retain(|file| file.path.ends_with(".rs"));
    let mut tests = Vec::new();
    for file in &files {
        // `src/kube/mod.rs` and `src/main.rs` have their modules beside them, `src/x.rs` has them in `src/x`.
        let folder = match file.path.rsplit_once('/') {
            Some((folder, "mod.rs" | "main.rs")) => folder.to_owned(),
            _ => file.path.trim_end_matches(".rs").to_owned(),
        };
        let text = file.text();
        for declaration in text.split("#[cfg(test)]\n").skip(1) {
            let mut lines = declaration.lines();
            let first = lines.next().unwrap_or_default();
            // The file may be named, if it is not called like the module.
            if let Some(path) = first.strip_prefix("#[path = \"") {
                let beside = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                tests.push(format!("{beside}/{}", path.trim_end_matches("\"]")));
            } else if let Some(name) = first.trim_start_matches("pub(crate) ").strip_prefix("mod ")
            {
                let name = name.trim_end_matches(';');
                tests.push(format!("{folder}/{name}.rs"));
                tests.push(format!("{folder}/{name}/"));
            }
        }
    }
    files.retain(|file| !tests.iter().any(|test| is_in(&file.path, test)));
    files
}

/// Whether a path is that file, or lies in that folder if it ends with a slash.
fn is_in(path: &str, room: &str) -> bool {
    path == room || (room.ends_with('/') && path.starts_with(room))
}

/// A document that must be there.
#[track_caller]
fn document(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails with the list of everything that is wrong, not with the first.
#[track_caller]
fn none_wrong(rule: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{rule}:\n  {}", wrong.join("\n  "));
}
