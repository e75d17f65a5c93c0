//! The file of a unix socket: made so that only our user can open it, taken over from the dead, removed at the end.
//!
//! Runs on the main thread at start and stop. A socket that somebody still listens on is never taken away, and nothing but a socket is
//! ever removed. Dials only to find out whether somebody listens.

use std::fmt;
use std::fs::{self, DirBuilder, File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// LIMIT: of the system, for the path of a socket: 108 bytes with the zero at its end.
const LONGEST_PATH: usize = 107;

/// LIMIT: names that are tried for the door. One of a million is taken only if somebody died at that very moment, so a second one
/// in a row means something else.
const ATTEMPTS: u32 = 8;

/// A bound socket's file. Dropping it removes the file, if it is still ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Why there is no socket; each names the remedy.
#[derive(Debug)]
pub(crate) enum SocketError {
    InUse { path: PathBuf },
    NoSocket { path: PathBuf },
    Failed { path: PathBuf, error: io::Error },
}

impl fmt::Display for SocketError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SocketError::InUse { path } => write!(
                out,
                "debug socket '{}' belongs to another running process; stop it, or name another with --debug-unix-socket",
                path.display()
            ),
            SocketError::NoSocket { path } => write!(
                out,
                "debug socket '{}': a file that is no socket is in the way; remove it, or name another with --debug-unix-socket",
                path.display()
            ),
            SocketError::Failed { path, error } => write!(
                out,
                "debug socket '{}' cannot be made: {error}; name a place that can be written with --debug-unix-socket",
                path.display()
            ),
        }
    }
}

impl SocketFile {
    /// Listens at `path`. Missing directories are made for our user alone.
    pub(crate) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
        let failed = |error| SocketError::Failed {
            path: path.to_owned(),
            error,
        };
        if path.as_os_str().as_bytes().len() > LONGEST_PATH {
            let text = format!("its path has more than {LONGEST_PATH} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, text)));
        }
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let mut private = DirBuilder::new();
        private.mode(0o700);
        private.recursive(true).create(parent).map_err(failed)?;
        check_free(path)?;
        let door = Door::make(parent).map_err(failed)?;
        door.bind(path).map_err(failed)
    }
}

/// A directory that only we can enter. Between making a socket and setting its mode anybody could open it, so that happens behind
/// this door; a rename then puts it in place of a dead one in one step. Dropping it removes it with what is left inside.
struct Door {
    path: PathBuf,
}

impl Door {
    /// Under a name that nobody has left behind: in a container every process has the same id, so that would be no name.
    fn make(parent: &Path) -> io::Result<Door> {
        let mut private = DirBuilder::new();
        private.mode(0o700);
        let mut made = Err(io::ErrorKind::AlreadyExists.into());
        for attempt in 0..ATTEMPTS {
            let number = RandomState::new().hash_one(attempt) % 0x10_0000;
            let path = parent.join(format!(".{number:05x}"));
            made = private.create(&path).map(|()| Door { path });
            let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
            if !made.as_ref().is_err_and(is_taken) {
                break;
            }
        }
        made
    }

    fn bind(&self, path: &Path) -> io::Result<(UnixListener, SocketFile)> {
        let hidden = self.hidden();
        let listener = if hidden.as_os_str().as_bytes().len() <= LONGEST_PATH {
            UnixListener::bind(&hidden)?
        } else {
            // The final path may be as long as the system allows, and this one is a few bytes longer: there is a short way in.
            let door = File::open(&self.path)?;
            UnixListener::bind(format!("/proc/self/fd/{}/s", door.as_raw_fd()))?
        };
        fs::set_permissions(&hidden, Permissions::from_mode(0o600))?;
        let status = fs::symlink_metadata(&hidden)?;
        fs::rename(&hidden, path)?;
        let file = SocketFile {
            path: path.to_owned(),
            device: status.dev(),
            inode: status.ino(),
        };
        Ok((listener, file))
    }

    fn hidden(&self) -> PathBuf {
        self.path.join("s")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.hidden());
        let _ = fs::remove_dir(&self.path);
    }
}

/// Nothing may be in the way but a socket that nobody listens on.
fn check_free(path: &Path) -> Result<(), SocketError> {
    let status = match fs::symlink_metadata(path) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let path = path.to_owned();
            return Err(SocketError::Failed { path, error });
        }
    };
    if !status.file_type().is_socket() {
        let path = path.to_owned();
        return Err(SocketError::NoSocket { path });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // Gone this very moment.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Also when it cannot be told: what may be alive is left alone.
        _ => Err(SocketError::InUse {
            path: path.to_owned(),
        }),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let status = fs::symlink_metadata(&self.path);
        let is_ours =
            status.is_ok_and(|status| (status.dev(), status.ino()) == (self.device, self.inode));
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A short path: the system allows 108 bytes for a socket's.
    fn place() -> PathBuf {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        std::env::temp_dir().join(format!("so-socket-{}-{count}", std::process::id()))
    }

    #[test]
    fn the_socket_is_for_our_user_alone_and_goes_when_it_is_dropped() {
        let folder = place();
        let path = folder.join("deep/debug.socket");
        let (listener, file) = SocketFile::bind(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&path), mode(path.parent().unwrap()), mode(&folder)),
            (0o600, 0o700, 0o700)
        );
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "nothing left behind"
        );
        drop((listener, file));
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_living_one_is_not() {
        let folder = place();
        let path = folder.join("s");
        let (listener, file) = SocketFile::bind(&path).unwrap();
        let error = SocketFile::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("--debug-unix-socket"), "{error}");
        drop(listener);
        let (_listener, second) = SocketFile::bind(&path).unwrap();
        // The first one's file is not there any more, so its end removes nothing.
        drop(file);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_path_may_be_as_long_as_the_system_allows_however_short_its_last_part_is() {
        for last in ["s", "debug", "debug.socket", "a-name-of-some-length.socket"] {
            for length in [99, 103, 104, 106, 107] {
                let folder = place();
                let start = folder.join("deep").as_os_str().len();
                let filling = length - start - 1 - last.len();
                let path = folder
                    .join(format!("deep{}", "x".repeat(filling)))
                    .join(last);
                assert_eq!(path.as_os_str().len(), length);
                let (listener, file) = SocketFile::bind(&path).unwrap();
                assert!(UnixStream::connect(&path).is_ok(), "{length} {last}");
                let beside = fs::read_dir(path.parent().unwrap()).unwrap().count();
                assert_eq!(beside, 1, "nothing left behind");
                drop((listener, file));
                assert!(!path.exists());
                fs::remove_dir_all(folder).unwrap();
            }
        }
        let folder = place();
        let error = SocketFile::bind(&folder.join("x".repeat(100))).unwrap_err();
        assert!(error.to_string().contains("107 bytes"), "{error}");
        assert!(!folder.exists());
    }

    /// In a container every operator is process 1, so what one of them left when it was killed may not stop all that follow.
    #[test]
    fn what_a_killed_one_has_left_is_in_nobodys_way() {
        let folder = place();
        fs::create_dir_all(folder.join(format!(".debug-{}", std::process::id()))).unwrap();
        let doors: Vec<Door> = (0..50).map(|_| Door::make(&folder).unwrap()).collect();
        let (_listener, _file) = SocketFile::bind(&folder.join("s")).unwrap();
        drop(doors);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = place();
        fs::create_dir(&folder).unwrap();
        let path = folder.join("precious");
        fs::write(&path, "x").unwrap();
        let error = SocketFile::bind(&path).unwrap_err();
        assert!(matches!(error, SocketError::NoSocket { .. }), "{error}");
        let below = SocketFile::bind(&path.join("s")).unwrap_err();
        assert!(matches!(below, SocketError::Failed { .. }), "{below}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
        fs::remove_dir_all(folder).unwrap();
    }
}
