//! Programs of the host with capabilities that no instance has, such as `ping`: the kernel would refuse to execute them
//! inside. Instances see copies without capabilities instead.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rustix::fs::lgetxattr;

use super::private;
use crate::local::capabilities;

/// The directories of programs, relative to `/usr`.
const DIRECTORIES: [&str; 4] = ["bin", "sbin", "local/bin", "local/sbin"];

/// Larger programs are not copied, and cannot be executed inside.
const MAX_BYTES: u64 = 32 << 20;

/// The size of the attribute.
const MAX_ATTRIBUTE: usize = 64;

/// Copies these programs into a layer above `usr`, unless the layer has something there already.
pub(super) fn copy_privileged_programs(usr: &Path, layer: &Path) -> io::Result<()> {
    for path in find_privileged_programs(usr)? {
        let (from, to) = (usr.join(&path), layer.join(&path));
        if fs::symlink_metadata(&to).is_ok() {
            continue;
        }
        private::make_parents(usr, &path, layer)?;
        let seen = fs::metadata(&from)?;
        // A name that exists is a complete copy.
        let next = to.with_extension("tarn-copy");
        fs::copy(&from, &next)?;
        chown(&next, Some(seen.uid()), Some(seen.gid()))?;
        fs::set_permissions(&next, fs::Permissions::from_mode(seen.mode() & 0o755))?;
        fs::rename(&next, &to)?;
    }
    Ok(())
}

/// Returns the programs, relative to `usr`. Links are not followed, and private files are covered anyway.
fn find_privileged_programs(usr: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for directory in DIRECTORIES {
        let Ok(entries) = fs::read_dir(usr.join(directory)) else { continue };
        for entry in entries {
            let entry = entry?;
            let Ok(seen) = entry.metadata() else { continue };
            let mut attribute = [0; MAX_ATTRIBUTE];
            if seen.is_file()
                && seen.len() <= MAX_BYTES
                && seen.mode() & 0o004 != 0
                && let Ok(length) = lgetxattr(entry.path(), capabilities::ATTRIBUTE, &mut attribute)
                && capabilities::prevents_execution(&attribute[..length])
            {
                found.push(Path::new(directory).join(entry.file_name()));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    #[test]
    fn privileged_programs_are_copied_without_capabilities() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root sets the capabilities of a file");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (usr, layer) = (directory.path().join("usr"), directory.path().join("layer"));
        fs::create_dir_all(usr.join("bin")).unwrap();
        fs::create_dir(&layer).unwrap();
        for (name, mode, capability) in
            [("ping", 0o755, Some(13)), ("server", 0o755, Some(10)), ("tool", 0o755, None), ("secret", 0o700, Some(13))]
        {
            let path = usr.join("bin").join(name);
            fs::write(&path, name).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            if let Some(capability) = capability {
                let words = [0x0200_0001, 1_u32 << capability, 0, 0, 0];
                let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                setxattr(&path, capabilities::ATTRIBUTE, &value, XattrFlags::empty()).unwrap();
            }
        }
        for _ in 0..2 {
            copy_privileged_programs(&usr, &layer).unwrap();
            let names: Vec<_> =
                fs::read_dir(layer.join("bin")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["ping"], "only what could not be executed is copied");
        }
        let copy = layer.join("bin/ping");
        assert_eq!(fs::read(&copy).unwrap(), b"ping");
        assert_eq!(fs::metadata(&copy).unwrap().mode() & 0o7777, 0o755);
        assert!(lgetxattr(&copy, capabilities::ATTRIBUTE, &mut [0; MAX_ATTRIBUTE]).is_err());
    }
}
