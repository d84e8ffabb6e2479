//! The built-in `host` image: the host's `/usr`, with an `/etc`, a `/var` and a `/home` that are built here.
//!
//! Only listed files of the host are included, and nothing that is not world-readable: no keys, no passwords, no data.
//! An image is a directory of two layers: `root`, everything except `/usr`, and `hide`, which covers what of `/usr` is
//! not for instances. It is built once for each state of the host's packages and private files, and not changed,
//! because running instances use it; only more is covered when one of them is restarted. Start reading at [`ensure`];
//! `skeleton` is for instances of container images.

mod accounts;
mod copy;
mod etc;
mod private;
mod programs;
mod skeleton;
mod usr_and_var;

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::local::host::files;

pub(super) use private::Private;
pub(super) use skeleton::{ensure as ensure_skeleton, sweep as sweep_skeletons};

/// Increase it whenever the contents change: a new number results in new images.
const FORMAT: u32 = 4;

/// The files that determine an image, besides the names in `/usr`.
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

/// Empty directories at the root, with their modes.
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

/// Links into `/usr`, on hosts with a merged `/usr`.
const LINKS: &[&str] = &["bin", "lib", "lib32", "lib64", "libx32", "sbin"];

/// Ensures the image of the host's current state exists, and returns its path. Blocks, for seconds at the first time.
pub(super) fn ensure(images: &Path, private: &[PathBuf]) -> io::Result<PathBuf> {
    let image = images.join(image_name(private)?);
    if image.exists() {
        return Ok(image);
    }
    if !fs::symlink_metadata("/bin")?.is_symlink() {
        return Err(io::Error::other("the host image needs a host whose /bin is a link into /usr"));
    }
    tracing::info!("building the image of this host, which takes some seconds");
    fs::create_dir_all(images)?;
    let next = images.join("next");
    files::remove_tree(&next)?;
    files::ensure_directory(&next, 0o755)?;
    build_image(&next, private)?;
    // A directory with this name is complete, also after a power failure.
    rustix::fs::syncfs(fs::File::open(&next)?)?;
    fs::rename(&next, &image)?;
    files::sync_directory(images)?;
    Ok(image)
}

/// Removes the images that neither the host's current state nor any instance needs.
pub(super) fn sweep(images: &Path, private: &[PathBuf], needed: impl Fn(&Path) -> bool) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(images) else { return Ok(()) };
    let current = images.join(image_name(private)?);
    for entry in entries {
        let path = entry?.path();
        if path != current && !needed(&path) {
            files::remove_tree(&path)?;
        }
    }
    Ok(())
}

/// Returns whether there is exactly one image, and it is of the current packages: then nothing has to be done before
/// instances are created.
pub(super) fn is_settled(images: &Path) -> io::Result<bool> {
    let Ok(entries) = fs::read_dir(images) else { return Ok(false) };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    let digest = sources_digest()?;
    Ok(matches!(&names[..], [only] if only.to_string_lossy().starts_with(&digest)))
}

/// Covers files that have become private, and programs that cannot be executed inside, since an image was built, for an
/// instance that is restarted.
pub(super) fn cover(image: &Path, private: &[PathBuf]) -> io::Result<()> {
    let (usr, layer) = (Path::new("/usr"), image.join("hide"));
    private::cover_private_files(usr, private, &layer)?;
    programs::copy_privileged_programs(usr, &layer)
}

fn build_image(image: &Path, private: &[PathBuf]) -> io::Result<()> {
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
    // The guest is mounted here.
    fs::write(root.join(".tarn/guest"), "")?;
    etc::build_etc(&root.join("etc"))?;
    accounts::build_accounts(&root)?;
    usr_and_var::build_var(&root.join("var"))?;
    usr_and_var::build_hiding_layer(&image.join("hide"), private)
}

/// Returns the name of an image, derived from the host's packages and the private files.
fn image_name(private: &[PathBuf]) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    for path in private {
        hasher.update(path.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
    }
    Ok(format!("{}-{}", sources_digest()?, &hasher.finalize().to_hex()[..8]))
}

fn sources_digest() -> io::Result<String> {
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
    for name in usr_and_var::hidden_paths()? {
        hasher.update(name.as_os_str().as_encoded_bytes());
        hasher.update(&[0]);
    }
    Ok(hasher.finalize().to_hex()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_files_change_the_image() {
        let (none, one) = (image_name(&[]).unwrap(), image_name(&["lib/x/token".into()]).unwrap());
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
