//! Which suites there are, and which hook each belongs to.
//!
//! Reads directories on the main thread and starts nothing. A suite lies beside its hook: `ingress.tests.yaml` beside `ingress.sh`, or
//! `ingress.sh.tests.yaml` where two hooks differ only in what follows the dot. A suite without a hook is a mistake that is told.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const ENDING: &str = ".tests.yaml";
/// LIMIT: directories within directories; hooks are rarely deeper than three, and a link in a circle must end.
const DEEPEST: usize = 32;

/// A suite and its hook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) suite: PathBuf,
    pub(super) hook: PathBuf,
    /// The hook's path below the hooks directory, or its file name when it lies elsewhere.
    pub(super) name: String,
}

/// Why a path leads to no suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unpaired {
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

/// All suites at these paths, each once, in the order of their names. Without paths those of the hooks directory.
pub(super) fn find(hooks_dir: &Path, paths: &[PathBuf]) -> (Vec<Pair>, Vec<Unpaired>) {
    let (mut pairs, mut unpaired) = (Vec::new(), Vec::new());
    let root = std::path::absolute(hooks_dir).unwrap_or_else(|_| hooks_dir.to_owned());
    let wanted = if paths.is_empty() {
        std::slice::from_ref(&root)
    } else {
        paths
    };
    for path in wanted {
        let found = std::path::absolute(path).and_then(|path| suites_at(&path));
        match found {
            Ok(suites) if suites.is_empty() => unpaired.push(Unpaired {
                path: path.clone(),
                reason: format!("no tests here; write NAME{ENDING} beside a hook"),
            }),
            Ok(suites) => {
                for suite in suites {
                    match hook_of(&suite) {
                        Ok(hook) => pairs.push(Pair {
                            name: name_of(&hook, &root),
                            suite,
                            hook,
                        }),
                        Err(reason) => unpaired.push(Unpaired {
                            path: suite,
                            reason,
                        }),
                    }
                }
            }
            Err(error) => unpaired.push(Unpaired {
                path: path.clone(),
                reason: error.to_string(),
            }),
        }
    }
    pairs.sort();
    pairs.dedup();
    (pairs, unpaired)
}

/// The suites that a path stands for: all below a directory, a suite itself, or that of a hook.
fn suites_at(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.metadata()?.is_dir() {
        let mut suites = Vec::new();
        walk(path, 0, &mut suites)?;
        return Ok(suites);
    }
    if is_suite(path) {
        return Ok(vec![path.to_owned()]);
    }
    let candidates = [
        path.file_name().map(|name| path.with_file_name(name)),
        Some(path.with_extension("")),
    ];
    let suite = candidates.into_iter().flatten().find_map(|base| {
        let mut name = base.into_os_string();
        name.push(ENDING);
        Some(PathBuf::from(name)).filter(|suite| suite.is_file())
    });
    Ok(suite.into_iter().collect())
}

fn walk(directory: &Path, depth: usize, suites: &mut Vec<PathBuf>) -> io::Result<()> {
    if depth > DEEPEST {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            if name != "lib" {
                walk(&path, depth + 1, suites)?;
            }
        } else if is_suite(&path) {
            suites.push(path);
        }
    }
    Ok(())
}

fn is_suite(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.len() > ENDING.len() && name.ends_with(ENDING.as_bytes())
}

/// The hook beside a suite: the file whose name the suite's begins with, with or without what follows its last dot.
fn hook_of(suite: &Path) -> Result<PathBuf, String> {
    let name = suite.file_name().unwrap_or_default().to_string_lossy();
    let base = name.strip_suffix(ENDING).unwrap_or(&name);
    let directory = suite.parent().unwrap_or(Path::new("."));
    let exact = directory.join(base);
    if exact.is_file() {
        return Ok(exact);
    }
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    let mut hooks: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let is_data = path.extension().is_some_and(|end| {
                ["yaml", "json", "md", "txt"]
                    .iter()
                    .any(|data| end == *data)
            });
            !is_data && path.is_file() && path.file_stem().is_some_and(|stem| stem == base)
        })
        .collect();
    hooks.sort();
    match hooks.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(format!("there is no hook `{base}` or `{base}.*` beside it")),
        [first, ..] => Err(format!(
            "several hooks are called `{base}`; name the suite after one of them, such as {}{ENDING}",
            first.file_name().unwrap_or_default().to_string_lossy()
        )),
    }
}

fn name_of(hook: &Path, root: &Path) -> String {
    let below = hook.strip_prefix(root).ok();
    let name = below.or(hook.file_name().map(Path::new)).unwrap_or(hook);
    name.to_string_lossy().into_owned()
}
