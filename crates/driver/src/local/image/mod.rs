//! The built-in `host` image: the machine's `/usr`, with an `/etc`, a `/var` and a `/home` that are made here.
//!
//! Only what is on a list of the machine gets in, and nothing that not everybody on the machine may read: no keys, no
//! passwords, no data. An image is a directory of two layers: `root`, everything but `/usr`, and `hide`, which covers what of
//! `/usr` is not for instances. It is made once for each state of the machine's packages and never changed, because running
//! instances stand on it. Start reading at [`ensure`]; `skeleton` is what instances of container images get instead.

mod accounts;
mod copy;
mod etc;
mod skeleton;
mod usr;
mod var;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::{files, trees};

pub(super) use skeleton::{ensure as ensure_skeleton, sweep as sweep_skeletons};

/// A new number makes new images: it changes whenever what is written here changes.
const FORMAT: u32 = 2;

/// What decides about an image, besides the names of what lies in `/usr`.
const SOURCES: &[&str] = &[
    "/var/lib/dpkg/status",
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/resolv.conf",
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/apt.conf.d",
    "/etc/ssl/certs",
    "/etc/alternatives",
    "/etc/pip.conf",
];

/// Directories at the root that are made empty, with their modes.
const DIRECTORIES: &[(&str, u32)] = &[
    ("boot", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("media", 0o755),
    ("mnt", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("usr", 0o755),
    ("var", 0o755),
    (".tarn", 0o755),
];

/// Where the machine has moved everything into `/usr`, these are links.
const LINKS: &[&str] = &["bin", "lib", "lib32", "lib64", "libx32", "sbin"];

/// The image of the machine as it is now, made if it is not there yet. Blocks, for seconds at the first time.
pub(super) fn ensure(images: &Path) -> io::Result<PathBuf> {
    let image = images.join(digest()?);
    if image.exists() {
        return Ok(image);
    }
    if !fs::symlink_metadata("/bin")?.is_symlink() {
        return Err(io::Error::other("the host image needs a machine whose /bin is a link into /usr"));
    }
    tracing::info!("making the image of this machine, which takes some seconds");
    fs::create_dir_all(images)?;
    let next = images.join("next");
    trees::remove(&next)?;
    files::ensure_directory(&next, 0o755)?;
    build(&next)?;
    // Its name says that it is whole, also after the power has gone.
    rustix::fs::syncfs(fs::File::open(&next)?)?;
    fs::rename(&next, &image)?;
    files::sync_directory(images)?;
    Ok(image)
}

/// Removes the images that neither the machine as it is now nor any instance needs.
pub(super) fn sweep(images: &Path, needed: impl Fn(&Path) -> bool) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(images) else { return Ok(()) };
    let current = images.join(digest()?);
    for entry in entries {
        let path = entry?.path();
        if path != current && !needed(&path) {
            trees::remove(&path)?;
        }
    }
    Ok(())
}

fn build(image: &Path) -> io::Result<()> {
    let root = image.join("root");
    files::ensure_directory(&root, 0o755)?;
    for (name, mode) in DIRECTORIES {
        files::ensure_directory(&root.join(name), *mode)?;
    }
    for name in LINKS {
        if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
            symlink(target, root.join(name))?;
        }
    }
    // The guest is shown here.
    fs::write(root.join(".tarn/guest"), "")?;
    etc::build(&root.join("etc"))?;
    accounts::build(&root)?;
    var::build(&root.join("var"))?;
    usr::hide(&image.join("hide"))
}

fn digest() -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&FORMAT.to_le_bytes());
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    for source in SOURCES {
        hasher.update(source.as_bytes());
        match fs::metadata(source) {
            Ok(found) => {
                hasher.update(&found.size().to_le_bytes());
                hasher.update(&found.mtime().to_le_bytes());
                hasher.update(&found.mtime_nsec().to_le_bytes());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    for name in usr::hidden()? {
        hasher.update(name.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}
