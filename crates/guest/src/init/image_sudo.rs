//! `sudo` for instances of container images. The `sudo` of an image is for its own users and passwords, so the guest's
//! comes before it on the path, if there is a suitable directory. Nothing of the image is changed.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, StatVfsMountFlags};
use tarn_link::Image;

use super::first_start::{have_equal_contents, install_setuid_copy, is_setuid_root};
use crate::configuration;
use crate::filesystem::{Owner, open_system_directory, read_file, replace_file};

/// The file that stores the location: only our own copy is replaced at a later start.
const LOCATION_FILE: &str = "sudo";

/// The preferred directory.
const DEFAULT_DIRECTORY: &str = "usr/local/bin";

/// Other directories, the best first: those of the system rather than those of the image.
const SYSTEM_DIRECTORIES: [&str; 5] = ["usr/bin", "usr/local/sbin", "usr/sbin", "bin", "sbin"];

/// The path if the image has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Installs the guest's `sudo`, and stores the settings of the image for it. Returns whether it had to be copied.
pub fn install_sudo_in_image(root: &Path, program: &Path, image: &Image) -> io::Result<bool> {
    configuration::save_image(root, image)?;
    let own = configuration::open_state_directory(root)?;
    let known = read_file(&own, LOCATION_FILE)?.map(|(_, text)| root.join(PathBuf::from(OsString::from_vec(text))));
    let Some(place) = known.or_else(|| choose_sudo_path(root, image)) else { return Ok(false) };
    if is_setuid_root(&place) && have_equal_contents(&place, program)? {
        return Ok(false);
    }
    let below = place.strip_prefix(root).unwrap_or(&place).as_os_str().as_bytes();
    replace_file(&own, LOCATION_FILE, below, Owner { account: None, mode: Mode::RUSR | Mode::WUSR })?;
    install_setuid_copy(program, &place)?;
    Ok(true)
}

/// Chooses a location on the image's path, before a `sudo` of the image; `None` if that comes first.
fn choose_sudo_path(root: &Path, image: &Image) -> Option<PathBuf> {
    let path =
        image.environment.iter().find(|(name, _)| name == "PATH").map_or(DEFAULT_PATH, |(_, path)| path.as_str());
    let all: Vec<PathBuf> = path
        .split(':')
        .filter(|directory| directory.starts_with('/') && !directory.contains("/.."))
        .map(|directory| root.join(directory.trim_start_matches('/')))
        .collect();
    let theirs = all.iter().position(|directory| directory.join("sudo").symlink_metadata().is_ok());
    let before = &all[..theirs.unwrap_or(all.len())];
    let usual = root.join(DEFAULT_DIRECTORY);
    let make_usual = || open_system_directory(root, DEFAULT_DIRECTORY).is_ok() && accepts_sudo(&usual);
    if before.contains(&usual) && make_usual() {
        return Some(usual.join("sudo"));
    }
    let system =
        SYSTEM_DIRECTORIES.iter().map(|directory| root.join(directory)).filter(|directory| before.contains(directory));
    match system.chain(before.iter().cloned()).find(|directory| accepts_sudo(directory)) {
        Some(free) => Some(free.join("sudo")),
        // It is not on the path then, but it exists.
        None => (theirs.is_none() && make_usual()).then(|| usual.join("sudo")),
    }
}

/// Returns whether a directory has no `sudo`, can be written only by root and searched by all users, and honours the
/// setuid bit.
fn accepts_sudo(directory: &Path) -> bool {
    // Other users may search it, but not write to it.
    let is_open = |mode: u32| mode & 0o022 == 0 && mode & 0o001 != 0;
    let is_roots = directory.metadata().is_ok_and(|m| m.is_dir() && m.uid() == 0 && is_open(m.mode()));
    let counts = rustix::fs::statvfs(directory).is_ok_and(|fs| !fs.f_flag.contains(StatVfsMountFlags::NOSUID));
    is_roots && counts && directory.join("sudo").symlink_metadata().is_err()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn image(path: &str) -> Image {
        Image { environment: vec![("PATH".into(), path.into())], ..Image::default() }
    }

    /// Installing `sudo` changes nothing of the image.
    #[test]
    fn sudo_leaves_image_files_alone() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: this test needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let placed = |path: &str| {
            choose_sudo_path(root.path(), &image(path)).map(|place| place.strip_prefix(root.path()).unwrap().to_owned())
        };
        assert_eq!(placed("/usr/local/bin:/usr/bin"), Some("usr/local/bin/sudo".into()), "the directory is created");
        fs::create_dir_all(at("usr/bin")).unwrap();
        fs::create_dir_all(at("opt/bin")).unwrap();
        fs::create_dir_all(at("sbin")).unwrap();
        assert_eq!(placed("/opt/bin:/usr/local/bin"), Some("usr/local/bin/sudo".into()));
        assert_eq!(placed("/opt/bin:/sbin:/usr/bin"), Some("usr/bin/sudo".into()), "not among the image's programs");
        assert_eq!(placed("/opt/bin:/sbin"), Some("sbin/sudo".into()));
        fs::write(at("usr/bin/sudo"), "theirs").unwrap();
        assert_eq!(placed("/usr/local/bin:/usr/bin"), Some("usr/local/bin/sudo".into()));
        assert_eq!(placed("/usr/bin:/usr/local/bin"), None, "the image's sudo comes first");
        assert_eq!(placed("/opt/bin:/usr/bin"), Some("opt/bin/sudo".into()));
        fs::set_permissions(at("opt/bin"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(placed("/opt/bin:/usr/bin"), None, "other users may write there");
        fs::create_dir_all(at("bin")).unwrap();
        assert_eq!(placed("/bin"), Some("bin/sudo".into()), "on the path");
        fs::set_permissions(at("bin"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(placed("/bin"), Some("usr/local/bin/sudo".into()), "other users may not search it");
        fs::write(at("usr/local/bin/sudo"), "theirs").unwrap();
        let program = std::env::current_exe().unwrap();
        assert!(!install_sudo_in_image(root.path(), &program, &image("/usr/local/bin:/usr/bin")).unwrap());
        assert_eq!(fs::read(at("usr/local/bin/sudo")).unwrap(), b"theirs");
    }

    /// Our copy of `sudo` is replaced when the guest changes.
    #[test]
    fn sudo_is_updated() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: this test needs root");
            return;
        }
        let (root, image) = (tempfile::tempdir().unwrap(), Image::default());
        let program = root.path().join("program");
        fs::write(&program, "one").unwrap();
        assert!(install_sudo_in_image(root.path(), &program, &image).unwrap());
        assert!(!install_sudo_in_image(root.path(), &program, &image).unwrap());
        fs::write(&program, "two").unwrap();
        assert!(install_sudo_in_image(root.path(), &program, &image).unwrap());
        let sudo = root.path().join("usr/local/bin/sudo");
        assert_eq!((fs::read(&sudo).unwrap(), sudo.metadata().unwrap().mode() & 0o7777), (b"two".to_vec(), 0o4755));
    }
}
