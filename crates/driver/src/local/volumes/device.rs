//! Loop devices: finding the one that a file has, and making one.
//!
//! What is asked is always the kernel: which file a device has is said by the file's own numbers, because a name may have
//! been given to another file since. Knows files and devices, and nothing of volumes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::kernel;

/// So often others may be faster to take a free device.
const RACES: u32 = 100;

/// A loop device that has a file. It lives for as long as this, or a mount of it anywhere.
#[derive(Debug)]
pub(in crate::local) struct Device {
    /// Its node below `/dev`.
    pub(in crate::local) path: PathBuf,
    /// Its number, as `st_dev` of files on it shows it.
    pub(in crate::local) number: u64,
    /// The file that it has.
    pub(in crate::local) file: Identity,
    open: File,
}

/// A file, however it is called: the device it lies on and its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::local) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(file: &fs::Metadata) -> Self {
        Identity(file.dev(), file.ino())
    }
}

impl Device {
    /// Looks at a device that has a file.
    pub(in crate::local) fn look(path: &Path) -> io::Result<Self> {
        let open = File::open(path)?;
        let found = open.metadata()?;
        if !found.file_type().is_block_device() {
            return Err(io::Error::other(format!("{} is not a device", path.display())));
        }
        let (device, inode) = kernel::backing(&open)?;
        Ok(Device { path: path.to_owned(), number: found.rdev(), file: Identity(device, inode), open })
    }

    /// Its name in the kernel.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Tells it that its file has another size now.
    pub(super) fn resize(&self) -> io::Result<()> {
        kernel::resize(&self.open)
    }
}

/// What a look at all devices showed.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// Those that have a file.
    pub(super) all: Vec<Device>,
    /// The names that the files of the others once had. They are just going, or `/dev` does not show them.
    pub(super) unseen: Vec<String>,
}

impl Devices {
    /// The one that has a file.
    pub(super) fn of(&self, file: Identity) -> Option<&Device> {
        self.all.iter().find(|device| device.file == file)
    }

    /// The one that has a file, to keep.
    pub(super) fn take(self, file: Identity) -> Option<Device> {
        self.all.into_iter().find(|device| device.file == file)
    }

    /// Whether one has a file that had this name once and is not the one that has it now.
    pub(super) fn has_former(&self, path: &Path, now: Option<Identity>) -> bool {
        let deleted = format!("{} (deleted)", path.display());
        let mut others = self.all.iter().filter(|device| Some(device.file) != now);
        others
            .any(|device| backing_name(&device.name()).is_some_and(|name| Path::new(&name) == path || name == deleted))
    }
}

/// The devices whose file was below a directory and is not there any more, each with that name. Only names are read: nothing
/// is opened.
pub(in crate::local) fn abandoned(below: &Path) -> io::Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let device = entry?.file_name().to_string_lossy().into_owned();
        let name = backing_name(&device).filter(|name| Path::new(name).starts_with(below) && !Path::new(name).exists());
        found.extend(name.map(|name| (device, name)));
    }
    Ok(found)
}

/// Looks at all devices that have a file.
pub(super) fn scan() -> io::Result<Devices> {
    let mut devices = Devices::default();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        // A device without a file needs no closer look.
        if !name.starts_with("loop") || backing_name(&name).is_none() {
            continue;
        }
        match Device::look(&Path::new("/dev").join(&*name)) {
            Ok(device) => devices.all.push(device),
            Err(_) => devices.unseen.extend(backing_name(&name)),
        }
    }
    Ok(devices)
}

/// The device of a file that keeps its name, found or made; `None` when one is just going away.
pub(in crate::local) fn open(path: &Path) -> io::Result<Option<Device>> {
    let file = File::options().read(true).write(true).open(path)?;
    let devices = scan()?;
    if devices.unseen.iter().any(|name| Path::new(name) == path) {
        return Ok(None);
    }
    match devices.take(Identity::of(&file.metadata()?)) {
        Some(device) => Ok(Some(device)),
        None => make(&file),
    }
}

/// The device of a file that was made just now, and cannot have one.
pub(in crate::local) fn make_for(path: &Path) -> io::Result<Option<Device>> {
    make(&File::options().read(true).write(true).open(path)?)
}

/// Whether a device has a file that is, or was, in this directory. None is opened for that, which would keep it.
pub(in crate::local) fn has_any(directory: &Path) -> io::Result<bool> {
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        if backing_name(&name.to_string_lossy()).is_some_and(|file| Path::new(&file).starts_with(directory)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Makes a device for a file that has none; `None` when others were always faster.
pub(super) fn make(file: &File) -> io::Result<Option<Device>> {
    let control = File::open("/dev/loop-control")?;
    for _ in 0..RACES {
        let name = format!("loop{}", kernel::free(&control)?);
        let path = Path::new("/dev").join(&name);
        let device = match File::options().read(true).write(true).open(&path) {
            Ok(device) => device,
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_node(&name)),
            Err(error) => return Err(error),
        };
        match kernel::configure(&device, file) {
            // Whoever holds a device open for writing keeps some kernels from mounting it, so it is opened again.
            Ok(()) => return Device::look(&path).map(Some),
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

fn no_node(name: &str) -> io::Error {
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
        let identity = Identity::of(&file.metadata().unwrap());
        assert!(scan().unwrap().of(identity).is_none());
        let made = make(&file).unwrap().unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::write(&path, "another file with its name").unwrap();
        let found = scan().unwrap().take(identity).unwrap();
        assert_eq!((&found.path, found.number), (&made.path, made.number));
        assert!(scan().unwrap().of(Identity::of(&fs::metadata(&path).unwrap())).is_none(), "a name is not a file");
        drop((made, found));
        // The kernel takes it apart with the last descriptor, and others may look at all devices right now.
        let gone = (0..100_000).any(|_| scan().unwrap().of(identity).is_none());
        assert!(gone, "nobody has it open");
    }
}
