//! The files of a run: a private directory, its input, and what the hook left in it.
//!
//! ```text
//! <tmp_dir>/operator-<pid>-<n>/       one per executor, locked as long as the process lives
//!     run-<number>/                   one per run, 0700, gone after the run
//!         binding-context.json …      0600, made with O_EXCL
//! ```
//! Runs on the thread that runs the hook. Never follows a link inside a run's directory, never blocks on what a hook put there,
//! and never holds more of a file in memory than its limit.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::warn;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::error::{ResultFileError, StartError};

/// A file of a run: its name, the variables that tell the hook where it is, and how much of it is read.
pub(super) struct RunFile {
    pub(super) name: &'static str,
    pub(super) variables: &'static [&'static str],
    /// What an error calls it.
    pub(super) title: &'static str,
    pub(super) limit: u64,
}

const MIB: u64 = 1024 * 1024;

/// Never read back, so its limit is not used.
pub(super) const BINDING_CONTEXT: RunFile = RunFile {
    name: "binding-context.json",
    variables: &["BINDING_CONTEXT_PATH"],
    title: "binding context file",
    limit: 0,
};

/// LIMIT: an object has at most 3 MiB; a patch that replaces all of it is 4 MiB in base64, and the same again leaves room for
/// message, warnings and a wasteful JSON writer.
pub(super) const ADMISSION_RESPONSE: RunFile = RunFile {
    name: "admission-response.json",
    variables: &[
        "ADMISSION_RESPONSE_PATH",
        "VALIDATING_RESPONSE_PATH",
        "VALIDATION_RESPONSE_PATH",
    ],
    title: "response file",
    limit: 8 * MIB,
};

/// LIMIT: a list of custom resources is converted in one request; ten objects of the largest size, or tens of thousands of usual
/// ones, fit.
pub(super) const CONVERSION_RESPONSE: RunFile = RunFile {
    name: "conversion-response.json",
    variables: &["CONVERSION_RESPONSE_PATH"],
    title: "conversion response file",
    limit: 32 * MIB,
};

/// LIMIT: an operation is about 200 bytes, so this is some 40 000 of them, more series than a registry should hold.
pub(super) const METRICS: RunFile = RunFile {
    name: "metrics.json",
    variables: &["METRICS_PATH"],
    title: "metrics file",
    limit: 8 * MIB,
};

/// LIMIT: ten objects of the largest size the API server takes, or thousands of usual ones.
pub(super) const OBJECT_PATCH: RunFile = RunFile {
    name: "object-patch",
    variables: &["KUBERNETES_PATCH_PATH"],
    title: "object patch file",
    limit: 32 * MIB,
};

/// Every file a hook is told about, whatever the run is for.
pub(super) const ALL: [&RunFile; 5] = [
    &BINDING_CONTEXT,
    &ADMISSION_RESPONSE,
    &CONVERSION_RESPONSE,
    &METRICS,
    &OBJECT_PATCH,
];

const WORKSPACE_PREFIX: &str = "operator-";
pub(super) const RUN_PREFIX: &str = "run-";
const PRIVATE_DIRECTORY: u32 = 0o700;

/// This executor's own directory below the temp directory.
///
/// INVARIANT: it is locked (flock) as long as it is used. The lock, not the number in the name, says whether its owner lives:
/// in containers every operator is process 1, and a volume may be shared by several of them.
pub(super) struct Workspace {
    path: PathBuf,
    keep: bool,
    _lock: OwnedFd,
}

impl Workspace {
    /// Creates the temp directory if it is missing, removes what killed operators left in it, and makes our own place there.
    pub(super) fn open(tmp_dir: &Path, keep: bool) -> Result<Workspace, StartError> {
        let refuse = |source| StartError::TmpDir {
            path: tmp_dir.to_owned(),
            source,
        };
        let tmp_dir = std::path::absolute(tmp_dir).map_err(refuse)?;
        private_directories().create(&tmp_dir).map_err(refuse)?;
        if !keep {
            remove_leftovers(&tmp_dir);
        }
        let process = std::process::id();
        let mut number = 0_u64;
        loop {
            let path = tmp_dir.join(format!("{WORKSPACE_PREFIX}{process}-{number}"));
            number += 1;
            match DirBuilder::new().mode(PRIVATE_DIRECTORY).create(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(refuse(error)),
            }
            // Another operator that starts now may take the new, still unlocked directory for a leftover. Then it holds the
            // lock or has removed the directory, and the next number is tried.
            match lock_directory(&path) {
                Ok(lock) if is_still_at(&lock, &path) => {
                    return Ok(Workspace {
                        path,
                        keep,
                        _lock: lock,
                    });
                }
                Ok(_) | Err(Errno::WOULDBLOCK | Errno::NOENT) => {}
                Err(error) => return Err(refuse(error.into())),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the directory of one run.
    pub(super) fn run_directory(self: &Arc<Self>, number: u64) -> io::Result<RunDirectory> {
        let path = self.path.join(format!("{RUN_PREFIX}{number}"));
        let mut builder = DirBuilder::new();
        builder.mode(PRIVATE_DIRECTORY);
        match builder.create(&path) {
            // Something cleaned the temp directory under us; runs must not fail for ever because of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_directories().create(&self.path)?;
                builder.create(&path)?;
            }
            other => other?,
        }
        let handle = rustix::fs::openat(
            CWD,
            &path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(RunDirectory {
            path,
            handle,
            created: Vec::with_capacity(ALL.len()),
            workspace: Arc::clone(self),
        })
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Not empty when files are kept or a run's directory resisted; then the next start removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// The directory of one run. Dropping it removes it, unless files are kept for debugging.
pub(super) struct RunDirectory {
    path: PathBuf,
    handle: OwnedFd,
    created: Vec<&'static str>,
    workspace: Arc<Workspace>,
}

impl RunDirectory {
    pub(super) fn path_of(&self, file: &RunFile) -> PathBuf {
        self.path.join(file.name)
    }

    /// Creates an empty file that only we and the hook can read.
    pub(super) fn create(&mut self, file: &RunFile) -> io::Result<File> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::CLOEXEC
            | OFlags::NOCTTY;
        let descriptor =
            rustix::fs::openat(&self.handle, file.name, flags, Mode::RUSR | Mode::WUSR)?;
        self.created.push(file.name);
        Ok(File::from(descriptor))
    }

    /// What the hook left in a file; nothing when there is no such file.
    ///
    /// The hook may have put anything at that place: the open neither follows a link nor waits for a FIFO's other end, and
    /// nothing but a regular file is read.
    pub(super) fn read(&self, file: &RunFile) -> Result<Vec<u8>, ResultFileError> {
        let title = file.title;
        let replaced = |by| ResultFileError::Replaced { file: title, by };
        let unreadable = |source| ResultFileError::Unreadable {
            file: title,
            source,
        };
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let descriptor = match rustix::fs::openat(&self.handle, file.name, flags, Mode::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(Errno::LOOP) => return Err(replaced("a symbolic link")),
            Err(Errno::NXIO) => return Err(replaced("a socket or a device")),
            Err(error) => return Err(unreadable(error.into())),
        };
        let stat = rustix::fs::fstat(&descriptor).map_err(|error| unreadable(error.into()))?;
        let file_type = FileType::from_raw_mode(stat.st_mode);
        if file_type != FileType::RegularFile {
            return Err(replaced(name_of(file_type)));
        }
        let too_large = ResultFileError::TooLarge {
            file: title,
            limit: file.limit,
        };
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > file.limit {
            return Err(too_large);
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        if size == 0 {
            return Ok(content);
        }
        // A process the hook left behind may still be writing, so the size seen above is no bound.
        File::from(descriptor)
            .take(file.limit + 1)
            .read_to_end(&mut content)
            .map_err(unreadable)?;
        if u64::try_from(content.len()).unwrap_or(u64::MAX) > file.limit {
            return Err(too_large);
        }
        Ok(content)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if self.workspace.keep {
            return;
        }
        // The usual directory holds only what we made: a few calls instead of a walk.
        for name in &self.created {
            let _ = rustix::fs::unlinkat(&self.handle, *name, AtFlags::empty());
        }
        if fs::remove_dir(&self.path).is_ok() {
            return;
        }
        // `remove_dir_all` removes links and never follows them.
        match fs::remove_dir_all(&self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(
                "temp directory: remove '{}': {error}; it will be removed at the next start",
                self.path.display()
            ),
        }
    }
}

fn private_directories() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(PRIVATE_DIRECTORY);
    builder
}

/// Removes the directories of operators that are gone.
fn remove_leftovers(tmp_dir: &Path) {
    let Ok(entries) = fs::read_dir(tmp_dir) else {
        return;
    };
    let our_user = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(WORKSPACE_PREFIX.as_bytes())
        {
            continue;
        }
        // `DirEntry::metadata` does not follow links.
        let is_ours = entry
            .metadata()
            .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == our_user);
        if !is_ours {
            continue;
        }
        let path = entry.path();
        // The lock is held while removing, so that a starting operator can not move in meanwhile.
        let Ok(_lock) = lock_directory(&path) else {
            continue;
        };
        if let Err(error) = fs::remove_dir_all(&path) {
            warn!(
                "temp directory: remove leftover '{}': {error}",
                path.display()
            );
        }
    }
}

/// Locks a directory; `WOULDBLOCK` when somebody else holds it.
fn lock_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

fn is_still_at(directory: &OwnedFd, path: &Path) -> bool {
    let (Ok(opened), Ok(named)) = (rustix::fs::fstat(directory), fs::symlink_metadata(path)) else {
        return false;
    };
    opened.st_ino == named.ino() && opened.st_dev == named.dev()
}

fn name_of(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Fifo => "a FIFO",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something that is not a file",
    }
}
