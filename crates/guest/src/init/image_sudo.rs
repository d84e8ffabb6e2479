//! `sudo` for instances of container images. An image that has one has it for a user and a password of its own, so the guest's
//! comes before it on the path, if there is a place for it: nothing that the image has is touched.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, StatVfsMountFlags};
use tarn_link::Image;

use super::first_start::{are_equal, copy_sudo, works};
use crate::configuration;
use crate::configuration::files::{Owner, read, replace, system_directory};

/// The file that says where it was put: only what is ours is replaced at a later start.
const PLACE: &str = "sudo";

/// Where it is put if nothing speaks against it.
const USUAL: &str = "usr/local/bin";

/// Where else it is put, the best first: where the system has its programs, and not among those of the image.
const SYSTEM: [&str; 5] = ["usr/bin", "usr/local/sbin", "usr/sbin", "bin", "sbin"];

/// Where programs are looked for if the image does not say.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Brings the guest's own `sudo`, and lets it know whose it is. Returns whether it had to be copied.
pub fn install_sudo_in_image(root: &Path, program: &Path, image: &Image) -> io::Result<bool> {
    configuration::remember_image(root, image)?;
    let own = configuration::directory(root)?;
    let known = read(&own, PLACE)?.map(|(_, text)| root.join(PathBuf::from(OsString::from_vec(text))));
    let Some(place) = known.or_else(|| place(root, image)) else { return Ok(false) };
    if works(&place) && are_equal(&place, program)? {
        return Ok(false);
    }
    let below = place.strip_prefix(root).unwrap_or(&place).as_os_str().as_bytes();
    replace(&own, PLACE, below, Owner { account: None, mode: Mode::RUSR | Mode::WUSR })?;
    copy_sudo(program, &place)?;
    Ok(true)
}

/// A place on the image's path, before a `sudo` of its own; none if that comes first.
fn place(root: &Path, image: &Image) -> Option<PathBuf> {
    let path = image.environment.iter().find(|(name, _)| name == "PATH").map_or(PATH, |(_, path)| path.as_str());
    let all: Vec<PathBuf> = path
        .split(':')
        .filter(|directory| directory.starts_with('/') && !directory.contains("/.."))
        .map(|directory| root.join(directory.trim_start_matches('/')))
        .collect();
    let theirs = all.iter().position(|directory| directory.join("sudo").symlink_metadata().is_ok());
    let before = &all[..theirs.unwrap_or(all.len())];
    let usual = root.join(USUAL);
    let make_usual = || system_directory(root, USUAL).is_ok() && is_free(&usual);
    if before.contains(&usual) && make_usual() {
        return Some(usual.join("sudo"));
    }
    let system = SYSTEM.iter().map(|directory| root.join(directory)).filter(|directory| before.contains(directory));
    match system.chain(before.iter().cloned()).find(|directory| is_free(directory)) {
        Some(free) => Some(free.join("sudo")),
        // It is not found by its name then, but it is there.
        None => (theirs.is_none() && make_usual()).then(|| usual.join("sudo")),
    }
}

/// Whether a directory has no `sudo`, is root's alone but open to all, and lets programs become root.
fn is_free(directory: &Path) -> bool {
    // Others may not write there, but look things up.
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

    #[test]
    fn nothing_of_the_image_is_touched() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: this test needs root");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let placed = |path: &str| {
            place(root.path(), &image(path)).map(|place| place.strip_prefix(root.path()).unwrap().to_owned())
        };
        assert_eq!(placed("/usr/local/bin:/usr/bin"), Some("usr/local/bin/sudo".into()), "it is made");
        fs::create_dir_all(at("usr/bin")).unwrap();
        fs::create_dir_all(at("opt/bin")).unwrap();
        fs::create_dir_all(at("sbin")).unwrap();
        assert_eq!(placed("/opt/bin:/usr/local/bin"), Some("usr/local/bin/sudo".into()));
        assert_eq!(placed("/opt/bin:/sbin:/usr/bin"), Some("usr/bin/sudo".into()), "not beside the image's programs");
        assert_eq!(placed("/opt/bin:/sbin"), Some("sbin/sudo".into()));
        fs::write(at("usr/bin/sudo"), "theirs").unwrap();
        assert_eq!(placed("/usr/local/bin:/usr/bin"), Some("usr/local/bin/sudo".into()));
        assert_eq!(placed("/usr/bin:/usr/local/bin"), None, "theirs comes first");
        assert_eq!(placed("/opt/bin:/usr/bin"), Some("opt/bin/sudo".into()));
        fs::set_permissions(at("opt/bin"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(placed("/opt/bin:/usr/bin"), None, "others may write there");
        fs::create_dir_all(at("bin")).unwrap();
        assert_eq!(placed("/bin"), Some("bin/sudo".into()), "where it is found");
        fs::set_permissions(at("bin"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(placed("/bin"), Some("usr/local/bin/sudo".into()), "nobody may look into that");
        fs::write(at("usr/local/bin/sudo"), "theirs").unwrap();
        let program = std::env::current_exe().unwrap();
        assert!(!install_sudo_in_image(root.path(), &program, &image("/usr/local/bin:/usr/bin")).unwrap());
        assert_eq!(fs::read(at("usr/local/bin/sudo")).unwrap(), b"theirs");
    }

    #[test]
    fn ours_is_made_anew_when_it_is_another() {
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
