//! The files of a run: a private directory, its input, and what the hook left in it.
//!
//! ```text
//! <tmp_dir>/operator-<pid>-<n>/               one per executor, locked as long as the process lives
//!     slot-<n>/                               one per run at a time, 0700
//!         binding-context-<run>.json …        0600, made with O_EXCL, removed after the run
//! ```
//! Making and removing a directory costs more than all the rest of a run on a disk with a journal, so a directory that is empty
//! after its run is used again. Names hold the number of the run, so nobody from an earlier run can write into a later one.
//! Runs on the thread that runs the hook. Never follows a link inside a run's directory, never blocks on what a hook put there,
//! and never holds more of a file in memory than its limit.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use log::warn;
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RawDir};
use rustix::io::Errno;

use super::error::{ResultFileError, StartError};

/// A file of a run: its name, the variables that tell the hook where it is, and how much of it is read.
pub(super) struct RunFile {
    /// The name is `<stem>-<run><suffix>`.
    stem: &'static str,
    suffix: &'static str,
    pub(super) variables: &'static [&'static str],
    /// What an error calls it.
    pub(super) title: &'static str,
    pub(super) limit: u64,
}

const MIB: u64 = 1024 * 1024;

/// Never read back, so its limit is not used.
pub(super) const BINDING_CONTEXT: RunFile = RunFile {
    stem: "binding-context",
    suffix: ".json",
    variables: &["BINDING_CONTEXT_PATH"],
    title: "binding context file",
    limit: 0,
};

/// LIMIT: an object has at most 3 MiB; a patch that replaces all of it is 4 MiB in base64, and the same again leaves room for
/// message, warnings and a wasteful JSON writer.
pub(super) const ADMISSION_RESPONSE: RunFile = RunFile {
    stem: "admission-response",
    suffix: ".json",
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
    stem: "conversion-response",
    suffix: ".json",
    variables: &["CONVERSION_RESPONSE_PATH"],
    title: "conversion response file",
    limit: 32 * MIB,
};

/// LIMIT: an operation is about 200 bytes, so this is some 40 000 of them, more series than a registry should hold.
pub(super) const METRICS: RunFile = RunFile {
    stem: "metrics",
    suffix: ".json",
    variables: &["METRICS_PATH"],
    title: "metrics file",
    limit: 8 * MIB,
};

/// LIMIT: ten objects of the largest size the API server takes, or thousands of usual ones.
pub(super) const OBJECT_PATCH: RunFile = RunFile {
    stem: "object-patch",
    suffix: "",
    variables: &["KUBERNETES_PATCH_PATH"],
    title: "object patch file",
    limit: 32 * MIB,
};

impl RunFile {
    fn name(&self, run: u64) -> String {
        format!("{}-{run}{}", self.stem, self.suffix)
    }

    /// The run that a path of this file belongs to, if it is one of a run below this directory.
    pub(super) fn run_of(&self, path: &[u8], workspace: &Path) -> Option<u64> {
        let below = path.strip_prefix(workspace.as_os_str().as_bytes())?;
        let text = std::str::from_utf8(below).ok()?.strip_prefix('/')?;
        let (_slot, name) = text.strip_prefix(SLOT_PREFIX)?.split_once('/')?;
        name.strip_prefix(self.stem)?
            .strip_prefix('-')?
            .strip_suffix(self.suffix)?
            .parse()
            .ok()
    }
}

/// Every file a hook is told about, whatever the run is for.
pub(super) const ALL: [&RunFile; 5] = [
    &BINDING_CONTEXT,
    &ADMISSION_RESPONSE,
    &CONVERSION_RESPONSE,
    &METRICS,
    &OBJECT_PATCH,
];

const WORKSPACE_PREFIX: &str = "operator-";
const SLOT_PREFIX: &str = "slot-";
const PRIVATE_DIRECTORY: u32 = 0o700;

/// This executor's own directory below the temp directory.
///
/// INVARIANT: it is locked (flock) as long as it is used. The lock, not the number in the name, says whether its owner lives:
/// in containers every operator is process 1, and a volume may be shared by several of them.
pub(super) struct Workspace {
    path: PathBuf,
    keep: bool,
    free: Mutex<Vec<Slot>>,
    next_slot: AtomicU64,
    _lock: OwnedFd,
}

/// A directory for one run at a time.
struct Slot {
    path: PathBuf,
    handle: OwnedFd,
    identity: (u64, u64),
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
                        free: Mutex::default(),
                        next_slot: AtomicU64::new(0),
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

    /// Gives a directory to one run.
    pub(super) fn run_directory(self: &Arc<Self>, run: u64) -> io::Result<RunDirectory> {
        let mut slot = None;
        while let Some(free) = self.free().pop() {
            // A hook may have moved it, or somebody cleaned the temp directory: then hooks could not find their files.
            if identity_at(&free.path) == Some(free.identity) {
                slot = Some(free);
                break;
            }
        }
        let slot = match slot {
            Some(slot) => slot,
            None => self.new_slot()?,
        };
        Ok(RunDirectory {
            slot: Some(slot),
            run,
            names: Vec::with_capacity(ALL.len()),
            workspace: Arc::clone(self),
        })
    }

    fn new_slot(&self) -> io::Result<Slot> {
        let number = self.next_slot.fetch_add(1, Ordering::Relaxed);
        let path = self.path.join(format!("{SLOT_PREFIX}{number}"));
        let mut builder = DirBuilder::new();
        builder.mode(PRIVATE_DIRECTORY);
        match builder.create(&path) {
            // The temp directory was cleaned under us; runs must not fail for ever because of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                private_directories().create(&self.path)?;
                builder.create(&path)?;
            }
            other => other?,
        }
        let handle = open_directory(&path)?;
        let stat = rustix::fs::fstat(&handle)?;
        Ok(Slot {
            path,
            handle,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        for slot in self.free().drain(..) {
            let _ = fs::remove_dir(&slot.path);
        }
        // Not empty when files are kept or a run's directory resisted; then the next start removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// The directory of one run. Dropping it removes the files in it, unless they are kept for debugging.
pub(super) struct RunDirectory {
    /// Always there until the drop.
    slot: Option<Slot>,
    run: u64,
    /// What is known to be in it.
    names: Vec<String>,
    workspace: Arc<Workspace>,
}

impl RunDirectory {
    pub(super) fn path_of(&self, file: &RunFile) -> PathBuf {
        let directory = self.slot.as_ref().map(|slot| slot.path.as_path());
        directory
            .unwrap_or(&self.workspace.path)
            .join(file.name(self.run))
    }

    /// Creates an empty file that only we and the hook can read.
    pub(super) fn create(&mut self, file: &RunFile) -> io::Result<File> {
        let name = file.name(self.run);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let created = self.open(&name, flags, Mode::RUSR | Mode::WUSR)?;
        self.names.push(name);
        Ok(File::from(created))
    }

    /// What the hook left in a file; nothing when there is no such file.
    ///
    /// The hook may have put anything at that place: the open neither follows a link nor waits for a FIFO's other end, and
    /// nothing but a regular file is read.
    pub(super) fn read(&mut self, file: &RunFile) -> Result<Vec<u8>, ResultFileError> {
        let title = file.title;
        let replaced = |by| ResultFileError::Replaced { file: title, by };
        let unreadable = |source| ResultFileError::Unreadable {
            file: title,
            source,
        };
        let name = file.name(self.run);
        let descriptor = match self.open(&name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) {
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
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        let too_large = ResultFileError::TooLarge {
            file: title,
            limit: file.limit,
        };
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > file.limit {
            return Err(too_large);
        }
        if size == 0 {
            return Ok(Vec::new());
        }
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
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

    fn open(&self, name: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let always = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        let slot = self.slot.as_ref().ok_or(Errno::NOENT)?;
        rustix::fs::openat(&slot.handle, name, flags | always, mode)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else {
            return;
        };
        if self.workspace.keep {
            return;
        }
        for name in &self.names {
            let _ = rustix::fs::unlinkat(&slot.handle, name, AtFlags::empty());
        }
        if is_empty(&slot.handle) {
            self.workspace.free().push(slot);
            return;
        }
        // The hook left more than it was asked for. `remove_dir_all` removes links and never follows them.
        match fs::remove_dir_all(&slot.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => warn!(
                "temp directory: remove '{}': {error}; it will be removed at the next start",
                slot.path.display()
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
    let directory = open_directory(path)?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}

fn is_still_at(directory: &OwnedFd, path: &Path) -> bool {
    rustix::fs::fstat(directory)
        .is_ok_and(|stat| identity_at(path) == Some((stat.st_dev, stat.st_ino)))
}

/// Device and number of what is at a path; a link is not followed.
fn identity_at(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whether a directory has no entries. When that can not be told, it is taken to have some.
fn is_empty(directory: &OwnedFd) -> bool {
    if rustix::fs::seek(directory, rustix::fs::SeekFrom::Start(0)).is_err() {
        return false;
    }
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) if [c".", c".."].contains(&entry.file_name()) => {}
            _ => return false,
        }
    }
    true
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
