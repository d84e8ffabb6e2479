//! Loop devices: finding the one that a file has, and making one.
//!
//! What is asked is always the kernel: which file a device has is said by the file's own numbers, because a name may have
//! been given to another file since. Knows files and devices, and nothing of volumes.

mod kernel;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// So often others may be faster to take a free device.
const MAX_ATTEMPTS: u32 = 100;

/// A loop device that has a file. It lives for as long as this, or a mount of it anywhere.
#[derive(Debug)]
pub(in crate::local) struct LoopDevice {
    /// Its node below `/dev`.
    pub(in crate::local) path: PathBuf,
    /// Its number, as `st_dev` of files on it shows it.
    pub(in crate::local) number: u64,
    /// The file that it has.
    pub(in crate::local) file: FileIdentity,
    open: File,
}

/// A file, however it is called: the device it lies on and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::local) struct FileIdentity(u64, u64);

impl FileIdentity {
    pub(in crate::local) fn of(file: &fs::Metadata) -> Self {
        FileIdentity(file.dev(), file.ino())
    }
}

impl LoopDevice {
    /// Looks at a device that has a file.
    pub(in crate::local) fn inspect(path: &Path) -> io::Result<Self> {
        let open = File::open(path)?;
        let found = open.metadata()?;
        if !found.file_type().is_block_device() {
            return Err(io::Error::other(format!("{} is not a device", path.display())));
        }
        let (device, inode) = kernel::backing_file(&open)?;
        Ok(LoopDevice { path: path.to_owned(), number: found.rdev(), file: FileIdentity(device, inode), open })
    }

    /// Its name in the kernel.
    pub(in crate::local) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Tells it that its file has another size now.
    pub(in crate::local) fn refresh_size(&self) -> io::Result<()> {
        kernel::refresh_size(&self.open)
    }
}

/// What a look at all devices showed.
#[derive(Debug, Default)]
pub(in crate::local) struct LoopDevices {
    /// Those that have a file.
    pub(in crate::local) all: Vec<LoopDevice>,
    /// The names that the files of the others once had. They are just going, or `/dev` does not show them.
    pub(in crate::local) unseen: Vec<String>,
}

impl LoopDevices {
    /// The one that has a file.
    pub(in crate::local) fn find(&self, file: FileIdentity) -> Option<&LoopDevice> {
        self.all.iter().find(|device| device.file == file)
    }

    /// The one that has a file, to keep.
    pub(in crate::local) fn into_device(self, file: FileIdentity) -> Option<LoopDevice> {
        self.all.into_iter().find(|device| device.file == file)
    }

    /// Whether one has a file that had this name once and is not the one that has it now.
    pub(in crate::local) fn has_replaced_file(&self, path: &Path, now: Option<FileIdentity>) -> bool {
        let deleted = format!("{} (deleted)", path.display());
        let mut others = self.all.iter().filter(|device| Some(device.file) != now);
        others
            .any(|device| backing_name(&device.name()).is_some_and(|name| Path::new(&name) == path || name == deleted))
    }
}

/// The devices whose file was below a directory and is not there any more, each with that name. Only names are read: nothing
/// is opened.
pub(in crate::local) fn abandoned_devices(below: &Path) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let device = entry?.file_name().to_string_lossy().into_owned();
        let name = backing_name(&device).filter(|name| Path::new(name).starts_with(below) && !Path::new(name).exists());
        found.extend(name.map(|name| (device, name)));
    }
    Ok(found)
}

/// Looks at all devices that have a file.
pub(in crate::local) fn scan_devices() -> io::Result<LoopDevices> {
    let mut devices = LoopDevices::default();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        // A device without a file needs no closer look.
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

/// The device of a file that keeps its name, found or made; `None` when one is just going away.
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

/// The device of a file that was made just now, and cannot have one.
pub(in crate::local) fn attach_new_file(path: &Path) -> io::Result<Option<LoopDevice>> {
    attach_file(&File::options().read(true).write(true).open(path)?)
}

/// Whether a device has a file that is, or was, in this directory. None is opened for that, which would keep it.
pub(in crate::local) fn has_device_below(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        if backing_name(&name.to_string_lossy()).is_some_and(|file| Path::new(&file).starts_with(directory)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes a device for a file that has none; `None` when others were always faster.
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
            // Whoever holds a device open for writing keeps some kernels from mounting it, so it is opened again.
            Ok(()) => return LoopDevice::inspect(&path).map(Some),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENXIO)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The name that the file of a device had when the device was made; `None` for a device without a file.
fn backing_name(device: &str) -> Option<String> {
    let name = fs::read_to_string(format!("/sys/block/{device}/loop/backing_file")).ok()?;
    Some(name.trim_end_matches('\n').to_owned())
}

fn missing_node_error(name: &str) -> io::Error {
    io::Error::other(format!("the kernel has {name}, but there is no such thing in /dev: is /dev a devtmpfs?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_file_and_goes_with_its_last_user() {
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
        // The kernel takes it apart with the last descriptor, and others may look at all devices right now.
        let gone = (0..100_000).any(|_| scan_devices().unwrap().find(identity).is_none());
        assert!(gone, "nobody has it open");
    }
}
