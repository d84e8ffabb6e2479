//! The built-in `host` image: the machine's `/usr`, with an `/etc`, a `/var` and a `/home` that are made here.
//!
//! Only what is on a list of the machine gets in, and nothing that not everybody on the machine may read: no keys, no
//! passwords, no data. An image is a directory of two layers: `root`, everything but `/usr`, and `hide`, which covers what of
//! `/usr` is not for instances. It is made once for each state of the machine's packages and of what is private in `/usr`, and
//! not changed, because running instances stand on it; only more of it is covered when one of them starts again. Start reading at [`ensure`]; `skeleton` is what instances of container images get instead.

mod accounts;
mod copy;
mod etc;
mod private;
mod skeleton;
mod usr;
mod var;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use super::{files, trees};

pub(super) use private::Private;
pub(super) use skeleton::{ensure as ensure_skeleton, sweep as sweep_skeletons};

/// A new number makes new images: it changes whenever what is written here changes.
const FORMAT: u32 = 3;

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
pub(super) fn ensure(images: &Path, private: &[PathBuf]) -> io::Result<PathBuf> {
    let image = images.join(name(private)?);
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
    build(&next, private)?;
    // Its name says that it is whole, also after the power has gone.
    rustix::fs::syncfs(fs::File::open(&next)?)?;
    fs::rename(&next, &image)?;
    files::sync_directory(images)?;
    Ok(image)
}

/// Removes the images that neither the machine as it is now nor any instance needs.
pub(super) fn sweep(images: &Path, private: &[PathBuf], needed: impl Fn(&Path) -> bool) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(images) else { return Ok(()) };
    let current = images.join(name(private)?);
    for entry in entries {
        let path = entry?.path();
        if path != current && !needed(&path) {
            trees::remove(&path)?;
        }
    }
    Ok(())
}

/// Whether there is one image, and it is that of the machine's packages: then there is nothing to do before instances are made.
pub(super) fn is_settled(images: &Path) -> io::Result<bool> {
    let Ok(entries) = fs::read_dir(images) else { return Ok(false) };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let digest = digest()?;
    Ok(matches!(&names[..], [only] if only.to_string_lossy().starts_with(&digest)))
}

/// Covers what has become private since an image was made, for an instance that starts again.
pub(super) fn cover(image: &Path, private: &[PathBuf]) -> io::Result<()> {
    private::cover(Path::new("/usr"), private, &image.join("hide"))
}

fn build(image: &Path, private: &[PathBuf]) -> io::Result<()> {
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
    usr::hide(&image.join("hide"), private)
}

/// What an image is called: after the machine's packages, and what is private.
fn name(private: &[PathBuf]) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for path in private {
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
    }
    Ok(format!("{}-{}", digest()?, &hasher.finalize().to_hex()[..8]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_private_makes_another_image() {
        let (none, one) = (name(&[]).unwrap(), name(&["lib/x/token".into()]).unwrap());
        assert_ne!(none, one);
        let images = tempfile::tempdir().unwrap();
        let settled = || is_settled(images.path()).unwrap();
        assert!(!settled(), "there is none");
        fs::create_dir(images.path().join(&none)).unwrap();
        assert!(settled());
        fs::create_dir(images.path().join(&one)).unwrap();
        assert!(!settled(), "one of them may have to go");
        fs::remove_dir(images.path().join(&none)).unwrap();
        assert!(settled(), "what is private is looked at later");
        fs::rename(images.path().join(&one), images.path().join("0123456789abcdef")).unwrap();
        assert!(!settled(), "the packages are others");
    }
}
