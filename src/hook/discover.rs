//! Finds the hooks in a directory.
//!
//! Runs on the main thread at start. The rules are the original's: hidden files and directories called `lib` are passed over,
//! what can be executed is a hook, and a link is taken for a file that can. One rule is ours: a link to a directory is that
//! directory, where the original tries to execute it and gives up; so directories in a mounted ConfigMap work. It starts nothing
//! and reads no file's content.

use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use log::{debug, warn};

/// Files with these extensions lie beside hooks and are none, whatever their mode. `.yml` is not in the original's list.
const NEVER_HOOKS: [&str; 4] = ["yaml", "json", "md", "txt"];

/// Any of the three execute bits.
const EXECUTABLE: u32 = 0o111;

/// A directory that could not be read, or a file whose mode could not.
#[derive(Debug)]
pub(crate) struct WalkError {
    pub(crate) path: PathBuf,
    pub(crate) error: io::Error,
}

/// The paths of all hooks below `root`, sorted by their bytes. This is the order that is used everywhere.
pub(crate) fn discover(root: &Path) -> Result<Vec<PathBuf>, WalkError> {
    if root.file_name().is_some_and(is_ignored_directory) {
        // The original finds no hook at all here and says nothing.
        warn!(path:% = root.display(); "hooks directory has a name that is ignored below it; its hooks are loaded");
    }
    warn_about_library(&root.join("lib"));
    let mut hooks = Vec::new();
    walk(root, &mut |path, executable| {
        if executable {
            hooks.push(path);
        } else {
            let error = "no executable permissions, chmod +x is required to run this hook";
            warn!(path:% = path.display(), error; "file is skipped");
        }
    })?;
    hooks.sort_by(|left, right| {
        left.as_os_str()
            .as_bytes()
            .cmp(right.as_os_str().as_bytes())
    });
    Ok(hooks)
}

/// What an entry of a directory is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Directory,
    /// A link that leads to a directory.
    LinkedDirectory,
    File {
        executable: bool,
    },
}

/// Visits every file that could be a hook. Without recursion, so that no depth of directories can exhaust the stack.
fn walk(root: &Path, visit: &mut dyn FnMut(PathBuf, bool)) -> Result<(), WalkError> {
    // A directory, and whether a link led there: then no further one is followed, so that the walk ends whatever links there are.
    let mut directories = vec![(root.to_owned(), false)];
    while let Some((directory, linked)) = directories.pop() {
        let failed = |error| WalkError {
            path: directory.clone(),
            error,
        };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = entry.path();
            let sort = look(&entry).map_err(|error| WalkError {
                path: path.clone(),
                error,
            })?;
            let name = entry.file_name();
            match sort {
                Sort::Directory | Sort::LinkedDirectory if is_ignored_directory(&name) => {}
                Sort::Directory => directories.push((path, linked)),
                Sort::LinkedDirectory if linked || leads_back(&path, &directory) => {
                    let error = "a link to a directory is followed once, and not to where it lies";
                    warn!(path:% = path.display(), error; "directory is skipped");
                }
                Sort::LinkedDirectory => directories.push((path, true)),
                Sort::File { .. } if is_hidden(&name) || is_never_hook(&path) => {
                    debug!(path:% = path.display(); "file is skipped");
                }
                Sort::File { executable } => visit(path, executable),
            }
        }
    }
    Ok(())
}

/// A link to a file is a file that can be executed, as its own mode says, and so is one that leads nowhere. Hooks mounted from a
/// ConfigMap are links.
fn look(entry: &DirEntry) -> io::Result<Sort> {
    let status = entry.metadata()?;
    if status.is_dir() {
        return Ok(Sort::Directory);
    }
    if status.is_symlink() && entry.path().is_dir() {
        return Ok(Sort::LinkedDirectory);
    }
    let executable = status.is_symlink() || status.permissions().mode() & EXECUTABLE != 0;
    Ok(Sort::File { executable })
}

/// Whether a link leads to the directory that it lies in, or to one above: every hook there would be found twice.
fn leads_back(link: &Path, directory: &Path) -> bool {
    match (link.canonicalize(), directory.canonicalize()) {
        (Ok(target), Ok(place)) => place.starts_with(target),
        // What cannot be resolved cannot be shown to be harmless.
        _ => true,
    }
}

/// Somebody who puts an executable file into `lib` probably expects it to run.
fn warn_about_library(library: &Path) {
    if !fs::symlink_metadata(library).is_ok_and(|status| status.is_dir()) {
        return;
    }
    // An error here is only a missing warning; the walk itself never goes into `lib`.
    let _ = walk(library, &mut |path, executable| {
        if executable {
            let file = path.strip_prefix(library).unwrap_or(&path);
            warn!(file:% = file.display(); "file has executable permissions and is located in the ignored 'lib' directory");
        }
    });
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn is_ignored_directory(name: &OsStr) -> bool {
    is_hidden(name) || name == "lib"
}

fn is_never_hook(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| NEVER_HOOKS.iter().any(|never| extension == *never))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::TempDir;
    use super::*;

    fn names(root: &Path) -> Vec<String> {
        discover(root)
            .unwrap_or_else(|error| panic!("{}: {}", error.path.display(), error.error))
            .iter()
            .map(|path| path.strip_prefix(root).unwrap().display().to_string())
            .collect()
    }

    #[test]
    fn executable_files_are_hooks_in_byte_order() {
        let dir = TempDir::new();
        for file in [
            "podHooks/hook2.sh",
            "podHooks/hook.sh",
            "hook.sh",
            "configMapHooks/hook.sh",
            "Z.sh",
            "a-b/x",
            "a/x",
            "a.sh",
            "deep/er/and/deeper/hook",
            "hook.yml",
            "hook.yaml.sh",
        ] {
            dir.file(file, 0o755);
        }
        assert_eq!(
            names(dir.path()),
            [
                "Z.sh",
                "a-b/x",
                "a.sh",
                "a/x",
                "configMapHooks/hook.sh",
                "deep/er/and/deeper/hook",
                "hook.sh",
                "hook.yaml.sh",
                "hook.yml",
                "podHooks/hook.sh",
                "podHooks/hook2.sh",
            ]
        );
    }

    #[test]
    fn hidden_files_libraries_and_documents_are_passed_over() {
        let dir = TempDir::new();
        for file in [
            ".hidden.sh",
            ".git/hook.sh",
            "lib/helper.sh",
            "sub/lib/helper.sh",
            "sub/.x/helper.sh",
            "values.yaml",
            "values.json",
            "README.md",
            "notes.txt",
        ] {
            dir.file(file, 0o777);
        }
        dir.file("plain.sh", 0o644);
        dir.file("library/hook.sh", 0o700);
        dir.file("group.sh", 0o010);
        assert_eq!(names(dir.path()), ["group.sh", "library/hook.sh"]);
    }

    #[test]
    fn links_to_files_are_hooks() {
        // What a ConfigMap mount looks like.
        let dir = TempDir::new();
        dir.file("..2024_05_01/hook.sh", 0o644);
        symlink("..2024_05_01", dir.path().join("..data")).unwrap();
        symlink("..data/hook.sh", dir.path().join("hook.sh")).unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        symlink("..data/hook.sh", dir.path().join("link.yaml")).unwrap();
        assert_eq!(names(dir.path()), ["dangling", "hook.sh"]);
    }

    #[test]
    fn links_to_directories_are_directories() {
        // A ConfigMap whose items have paths with slashes.
        let dir = TempDir::new();
        for (file, mode) in [
            ("first/hook.sh", 0o755),
            ("first/common.sh", 0o644),
            ("first/deeper/hook.sh", 0o755),
            ("lib/shared.sh", 0o755),
        ] {
            dir.file(&format!("..2024_05_01/{file}"), mode);
        }
        symlink("..2024_05_01", dir.path().join("..data")).unwrap();
        symlink("..data/first", dir.path().join("first")).unwrap();
        symlink("..data/lib", dir.path().join("lib")).unwrap();
        assert_eq!(names(dir.path()), ["first/deeper/hook.sh", "first/hook.sh"]);
    }

    #[test]
    fn links_in_a_circle_end() {
        let dir = TempDir::new();
        dir.file("a/hook.sh", 0o755);
        dir.file("b/hook.sh", 0o755);
        symlink("..", dir.path().join("a/up")).unwrap();
        symlink(".", dir.path().join("here")).unwrap();
        symlink("../b", dir.path().join("a/other")).unwrap();
        symlink("../a", dir.path().join("b/other")).unwrap();
        assert_eq!(
            names(dir.path()),
            [
                "a/hook.sh",
                "a/other/hook.sh",
                "b/hook.sh",
                "b/other/hook.sh"
            ]
        );
    }

    #[test]
    fn a_hooks_directory_may_be_a_link_or_have_an_ignored_name() {
        let dir = TempDir::new();
        dir.file("lib/hook.sh", 0o755);
        dir.file(".hooks/hook.sh", 0o755);
        symlink("lib", dir.path().join("link")).unwrap();
        for root in ["lib", ".hooks", "link"] {
            assert_eq!(names(&dir.path().join(root)), ["hook.sh"], "{root}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_it() {
        let dir = TempDir::new();
        let missing = dir.path().join("missing");
        assert_eq!(discover(&missing).unwrap_err().path, missing);
        assert_eq!(names(dir.path()), Vec::<String>::new());
    }
}
