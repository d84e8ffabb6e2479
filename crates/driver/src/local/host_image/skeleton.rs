//! The skeleton: the top layer of instances of container images. It has the mount points and the name resolution, and
//! nothing else. It hides whatever an image has at these paths, also links that lead elsewhere.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{XattrFlags, setxattr};

use super::etc;
use crate::local::host::files;

/// Increase it whenever the contents change: a new number results in new skeletons.
const FORMAT: u32 = 1;

/// Directories with their modes, and whether they hide the contents of the image.
const DIRECTORIES: &[(&str, u32, bool)] = &[
    (".tarn", 0o755, true),
    ("dev", 0o755, true),
    ("etc", 0o755, false),
    ("mnt", 0o755, false),
    ("proc", 0o555, true),
    ("run", 0o755, true),
    ("sys", 0o555, true),
    ("tmp", 0o1777, false),
];

/// Ensures the skeleton for the host's current state exists, and returns its path.
pub(in crate::local) fn ensure(skeletons: &Path) -> io::Result<PathBuf> {
    let skeleton = skeletons.join(skeleton_digest());
    if skeleton.exists() {
        return Ok(skeleton);
    }
    fs::create_dir_all(skeletons)?;
    let next = skeletons.join("next");
    files::remove_tree(&next)?;
    let root = next.join("root");
    for directory in [&next, &root] {
        files::ensure_directory(directory, 0o755)?;
    }
    for (name, mode, covers) in DIRECTORIES {
        files::ensure_directory(&root.join(name), *mode)?;
        if *covers {
            setxattr(root.join(name), "trusted.overlay.opaque", b"y", XattrFlags::empty())?;
        }
    }
    // The guest is mounted here.
    fs::write(root.join(".tarn/guest"), "")?;
    fs::write(root.join("etc/hosts"), etc::HOSTS)?;
    fs::write(root.join("etc/resolv.conf"), etc::name_servers())?;
    symlink("/proc/self/mounts", root.join("etc/mtab"))?;
    rustix::fs::syncfs(fs::File::open(&next)?)?;
    fs::rename(&next, &skeleton)?;
    files::sync_directory(skeletons)?;
    Ok(skeleton)
}

/// Removes the skeletons that no instance needs.
pub(in crate::local) fn sweep(skeletons: &Path, needed: impl Fn(&Path) -> bool) -> io::Result<()> {
    let Ok(entries) = fs::read_dir(skeletons) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if !needed(&path) {
            files::remove_tree(&path)?;
        }
    }
    Ok(())
}

fn skeleton_digest() -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&FORMAT.to_le_bytes());
    hasher.update(etc::name_servers().as_bytes());
    hasher.finalize().to_hex()[..16].to_owned()
}
