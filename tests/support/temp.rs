//! A folder of one test, removed at its end.
//!
//! The watchdog knows it too: when the run is interrupted, it removes the folder and ends every process whose environment names
//! it, which is everything that an `Env` has started, and what that has started in turn.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use super::watchdog;

static COUNT: AtomicUsize = AtomicUsize::new(0);
static WRITING: RwLock<()> = RwLock::new(());

#[derive(Debug)]
pub(crate) struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Short names, because a unix socket's path must fit into 108 bytes.
    pub(crate) fn new() -> TempDir {
        loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let path =
                std::env::temp_dir().join(format!("so-test-{}-{number}", std::process::id()));
            // Somebody may have been killed together with the watchdog and left a folder under our process id.
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    watchdog::add("dir", &path.to_string_lossy());
                    return TempDir { path };
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make {}: {error}", path.display()),
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, with its parent folders, and answers its path.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        write_file(&self.path.join(name), content.as_ref(), 0o600)
    }

    /// Writes a program.
    pub(crate) fn script(&self, name: &str, content: &str) -> PathBuf {
        write_file(&self.path.join(name), content.as_bytes(), 0o755)
    }
}

/// Under another name first and then renamed, so that whoever reads at that moment sees the old content or the new one.
pub(crate) fn write_file(path: &Path, content: &[u8], mode: u32) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let part = path.with_extension(format!("part{number}"));
    let nobody_is_born = WRITING.write().unwrap_or_else(PoisonError::into_inner);
    fs::write(&part, content).unwrap();
    drop(nobody_is_born);
    fs::set_permissions(&part, fs::Permissions::from_mode(mode)).unwrap();
    fs::rename(&part, path).unwrap();
    path.to_owned()
}

/// Starts a process while no file is open for writing. A child inherits what is open and keeps it until it has become another
/// program; a script that is open for writing anywhere cannot be executed ("text file busy").
pub(super) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _nothing_is_written = WRITING.read().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        watchdog::remove("dir", &self.path.to_string_lossy());
    }
}
