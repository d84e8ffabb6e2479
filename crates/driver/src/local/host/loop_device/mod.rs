//! Loop devices: finds the one that a file is attached to, and attaches files.
//!
//! The kernel is always asked, and files are compared by device and inode, because a name may have been given to
//! another file since. This module knows files and devices, and nothing of volumes.

mod kernel;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// How often another process may take a free device first.
const MAX_ATTEMPTS: u32 = 100;

/// A loop device with a file. It stays attached while this value or any mount of it lives.
#[derive(Debug)]
pub(in crate::local) struct LoopDevice {
    /// The device node below `/dev`.
    pub(in crate::local) path: PathBuf,
    /// The device number, as `st_dev` of files on it shows it.
    pub(in crate::local) number: u64,
    /// The attached file.
    pub(in crate::local) file: FileIdentity,
    open: File,
}

/// The identity of a file, whatever its name: its device and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::local) struct FileIdentity(u64, u64);

impl FileIdentity {
    pub(in crate::local) fn of(file: &fs::Metadata) -> Self {
        FileIdentity(file.dev(), file.ino())
    }
}

impl LoopDevice {
    /// Inspects a device that has a file.
    pub(in crate::local) fn inspect(path: &Path) -> io::Result<Self> {
        let open = File::open(path)?;
        let found = open.metadata()?;
        if !found.file_type().is_block_device() {
            return Err(io::Error::other(format!("{} is not a device", path.display())));
        }
        let (device, inode) = kernel::backing_file(&open)?;
        Ok(LoopDevice { path: path.to_owned(), number: found.rdev(), file: FileIdentity(device, inode), open })
    }

    /// The name of the device in the kernel.
    pub(in crate::local) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Tells the device that the size of its file has changed.
    pub(in crate::local) fn refresh_size(&self) -> io::Result<()> {
        kernel::refresh_size(&self.open)
    }
}

/// The result of a scan over all loop devices.
#[derive(Debug, Default)]
pub(in crate::local) struct LoopDevices {
    /// The devices with a file.
    pub(in crate::local) all: Vec<LoopDevice>,
    /// The former names of the files of devices that could not be opened: they are being detached, or `/dev` lacks
    /// them.
    pub(in crate::local) unseen: Vec<String>,
}

impl LoopDevices {
    /// The device that a file is attached to.
    pub(in crate::local) fn find(&self, file: FileIdentity) -> Option<&LoopDevice> {
        self.all.iter().find(|device| device.file == file)
    }

    /// The device that a file is attached to, by value.
    pub(in crate::local) fn into_device(self, file: FileIdentity) -> Option<LoopDevice> {
        self.all.into_iter().find(|device| device.file == file)
    }

    /// Returns whether a device has a file that once had this name and is not the file that has it now.
    pub(in crate::local) fn has_replaced_file(&self, path: &Path, now: Option<FileIdentity>) -> bool {
        let deleted = format!("{} (deleted)", path.display());
        let mut others = self.all.iter().filter(|device| Some(device.file) != now);
        others
            .any(|device| backing_name(&device.name()).is_some_and(|name| Path::new(&name) == path || name == deleted))
    }
}

/// The devices whose file was below a directory and no longer exists, each with that name. Only names are read; no
/// device is opened.
pub(in crate::local) fn abandoned_devices(below: &Path) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let device = entry?.file_name().to_string_lossy().into_owned();
        let name = backing_name(&device).filter(|name| Path::new(name).starts_with(below) && !Path::new(name).exists());
        found.extend(name.map(|name| (device, name)));
    }
    Ok(found)
}

/// Scans all loop devices that have a file.
pub(in crate::local) fn scan_devices() -> io::Result<LoopDevices> {
    let mut devices = LoopDevices::default();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with("loop") || backing_name(&name).is_none() {
            continue;
        }
        match LoopDevice::inspect(&Path::new("/dev").join(&*name)) {
            Ok(device) => devices.all.push(device),
            Err(_) => devices.unseen.extend(backing_name(&name)),
        }
    }
    Ok(devices)
}

/// Finds or attaches the device of a file that keeps its name; `None` when one is just being detached.
pub(in crate::local) fn find_or_attach(path: &Path) -> io::Result<Option<LoopDevice>> {
    let file = File::options().read(true).write(true).open(path)?;
    let devices = scan_devices()?;
    if devices.unseen.iter().any(|name| Path::new(name) == path) {
        return Ok(None);
    }
    match devices.into_device(FileIdentity::of(&file.metadata()?)) {
        Some(device) => Ok(Some(device)),
        None => attach_file(&file),
    }
}

/// Attaches a file that was just created and cannot have a device yet.
pub(in crate::local) fn attach_new_file(path: &Path) -> io::Result<Option<LoopDevice>> {
    attach_file(&File::options().read(true).write(true).open(path)?)
}

/// Returns whether a device has a file that is, or was, in this directory. No device is opened, because that would keep
/// it attached.
pub(in crate::local) fn has_device_below(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        if backing_name(&name.to_string_lossy()).is_some_and(|file| Path::new(&file).starts_with(directory)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Attaches a file that has no device; `None` when other processes always took the free device first.
pub(in crate::local) fn attach_file(file: &File) -> io::Result<Option<LoopDevice>> {
    let control = File::open("/dev/loop-control")?;
    for _ in 0..MAX_ATTEMPTS {
        let name = format!("loop{}", kernel::next_free_number(&control)?);
        let path = Path::new("/dev").join(&name);
        let device = match File::options().read(true).write(true).open(&path) {
            Ok(device) => device,
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing_node_error(&name)),
            Err(error) => return Err(error),
        };
        match kernel::attach_file(&device, file) {
            // Some kernels refuse to mount a device that is open for writing, so it is opened again.
            Ok(()) => return LoopDevice::inspect(&path).map(Some),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The name that the file of a device had when it was attached; `None` for a device without a file.
fn backing_name(device: &str) -> Option<String> {
    let name = fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

fn missing_node_error(name: &str) -> io::Error {
    io::Error::other(format!("the kernel has {name}, but /dev lacks it: is /dev a devtmpfs?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device is found by its file, whatever its name, and detached with its last user.
    #[test]
    fn device_is_found_by_file_and_detached_with_last_user() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: loop devices need root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("file"), directory.path().join("moved"));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let identity = FileIdentity::of(&file.metadata().unwrap());
        assert!(scan_devices().unwrap().find(identity).is_none());
        let made = attach_file(&file).unwrap().unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "another file with its name").unwrap();
        let found = scan_devices().unwrap().into_device(identity).unwrap();
        assert_eq!((&found.path, found.number), (&made.path, made.number));
        assert!(
            scan_devices().unwrap().find(FileIdentity::of(&fs::metadata(&path).unwrap())).is_none(),
            "a name is not a file"
        );
        drop((made, found));
        // The kernel detaches the file with the last descriptor, and another test may scan all devices right now.
        let gone = (0..100_000).any(|_| scan_devices().unwrap().find(identity).is_none());
        assert!(gone, "it is detached once it is closed everywhere");
    }
}
