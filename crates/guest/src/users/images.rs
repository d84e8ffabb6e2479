//! Instances of container images: the user of their programs, its shell, and the working directory.
//!
//! An image may have any user or none, and user files that are missing, enormous or malformed. The user can log in
//! regardless: an unreadable file counts as missing, and an id without an entry is still a user. Nothing is written for
//! that. Only a name without an entry is refused.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tarn_base::plain;
use tarn_link::Image;

use crate::users::{Account, Accounts};

/// Possible shells, the best first.
const SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh"];

/// Shells that refuse a login. They protect service accounts on shared hosts, which does not matter in an instance with
/// one user.
const NON_LOGIN_SHELLS: [&str; 2] = ["nologin", "false"];

/// The largest user or group id in an instance.
const MAX_ID: u32 = 65_535;

/// The maximum number of environment variables of an image.
const MAX_VARIABLES: usize = 4096;

/// Finds the account that the programs of an image run as.
pub(crate) fn resolve_image_account(root: &Path, accounts: &Accounts, image: &Image) -> io::Result<Account> {
    let whole = image.user.as_deref().unwrap_or_default();
    let (user, group) = whole.split_once(':').unwrap_or((whole, ""));
    let (user, group) = (if user.is_empty() { "root" } else { user }, Some(group).filter(|group| !group.is_empty()));
    let number = if user == "root" { Some(0) } else { user.parse().ok() };
    let mut account = match (accounts.find_by_name(user), number) {
        (Some(known), _) => known,
        (None, Some(uid)) => accounts.find_by_uid(uid).unwrap_or_else(|| account_without_entry(root, image, uid)),
        (None, None) => return Err(unknown_user_error(user)),
    };
    if let Some(group) = group {
        let number = accounts.find_gid(group).or_else(|| group.parse().ok());
        let number = number.ok_or_else(|| io::Error::other(format!("the image has no group {}", plain(group, 80))))?;
        // With an explicit group, the user is in no other.
        (account.gid, account.groups) = (number, vec![number]);
    }
    if account.uid > MAX_ID || account.gid > MAX_ID {
        let name = plain(&account.name, 80);
        let message = format!("the image's user {name} has an id above {MAX_ID}, which an instance does not support");
        return Err(io::Error::other(message));
    }
    account.groups.retain(|group| *group <= MAX_ID);
    account.shell = find_shell(root, Some(&account.shell)).unwrap_or_else(|| "/bin/sh".into());
    // A home that is not a directory would prevent every login.
    if !account.home.is_dir() && account.home.symlink_metadata().is_ok() {
        account.home = root.to_owned();
    }
    Ok(account)
}

/// Builds the error for a user name that the image does not have.
fn unknown_user_error(user: &str) -> io::Error {
    io::Error::other(format!(
        "the image has no user {}, which its USER names: add a line to its /etc/passwd, or use a number in USER",
        plain(user, 80)
    ))
}

/// Builds an account for a user id without an entry.
fn account_without_entry(root: &Path, image: &Image, uid: u32) -> Account {
    let name = if uid == 0 { "root".to_owned() } else { uid.to_string() };
    let given = image.environment.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.as_str());
    let given = given.filter(|home| home.starts_with('/') && !home.contains('\0'));
    let homes = root.join("home");
    let usual = match uid {
        0 if root.join("root").is_dir() => "/root".to_owned(),
        // A home that the user may write; it is created when the instance starts.
        1.. if homes.is_dir() || homes.symlink_metadata().is_err() => format!("/home/{uid}"),
        _ => "/".to_owned(),
    };
    let home = root.join(given.unwrap_or(&usual).trim_start_matches('/'));
    Account { name, uid, gid: 0, groups: vec![0], home, shell: PathBuf::new() }
}

/// Finds the shell of a user: the configured one if it allows a login, else the best available; `None` if the image has
/// none.
pub(crate) fn find_shell(root: &Path, wanted: Option<&Path>) -> Option<PathBuf> {
    let is_open =
        |shell: &&Path| !NON_LOGIN_SHELLS.iter().any(|closed| shell.file_name().is_some_and(|name| name == *closed));
    let is_there =
        |shell: &Path| shell.is_absolute() && is_executable_file(&root.join(shell.strip_prefix("/").unwrap_or(shell)));
    let all = wanted.filter(is_open).into_iter().chain(SHELLS.iter().map(Path::new));
    all.into_iter().find(|shell| is_there(shell)).map(Path::to_owned)
}

/// Returns whether a path is an executable file.
pub(crate) fn is_executable_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Returns the working directory of sessions, if the image names an existing one.
pub(crate) fn image_directory(root: &Path, image: &Image) -> Option<PathBuf> {
    let named =
        image.directory.as_deref().filter(|directory| directory.starts_with('/') && !directory.contains('\0'))?;
    Some(root.join(named.trim_start_matches('/'))).filter(|directory| directory.is_dir())
}

/// Returns the valid environment variables of an image.
pub(crate) fn image_variables(image: &Image) -> impl Iterator<Item = (&str, &str)> {
    let good = |name: &str, value: &str| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    let all = image.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(move |(name, value)| good(name, value)).take(MAX_VARIABLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/usr/sbin/nologin\n\
        evil:x:4294967295:4294967295::/:/bin/sh\nminus:x:-1:-1::/:/bin/sh\nfar:x:70000:70000::/:/bin/sh\n";
    const GROUP: &str = "staff:x:50:\nvideo:x:44:app\nfar:x:70000:app\n";

    fn image(user: Option<&str>) -> Image {
        Image { user: user.map(Into::into), ..Image::default() }
    }

    fn of(user: Option<&str>) -> io::Result<(String, u32, Vec<u32>)> {
        let root = tempfile::tempdir().unwrap();
        let accounts = Accounts::parse(root.path(), PASSWD, GROUP);
        resolve_image_account(root.path(), &accounts, &image(user)).map(|found| (found.name, found.uid, found.groups))
    }

    /// Every format of an image's user is resolved.
    #[test]
    fn image_user_formats_resolve() {
        assert_eq!(of(None).unwrap(), ("root".into(), 0, vec![0]));
        assert_eq!(of(Some("app")).unwrap(), ("app".into(), 1000, vec![1001, 44]), "ids above the limit are left out");
        assert_eq!(of(Some("1000")).unwrap().0, "app");
        assert_eq!(of(Some("app:staff")).unwrap(), ("app".into(), 1000, vec![50]));
        assert_eq!(of(Some("1000:7")).unwrap().2, [7]);
        assert_eq!(of(Some("4711")).unwrap(), ("4711".into(), 4711, vec![0]));
        assert_eq!(of(Some(":7")).unwrap(), ("root".into(), 0, vec![7]));
        for nobody in ["ghost", "a\nb", "ghost:staff"] {
            let message = of(Some(nobody)).unwrap_err().to_string();
            assert!(
                message.contains("the image has no user") && message.contains("USER") && !message.contains('\n'),
                "{message}"
            );
        }
        assert!(of(Some("app:nowhere")).unwrap_err().to_string().contains("no group nowhere"));
    }

    /// An invalid id never leads to root.
    #[test]
    fn invalid_ids_are_refused() {
        for user in ["evil", "minus", "-1"] {
            assert!(of(Some(user)).unwrap_err().to_string().contains("no user"), "{user}: the line is invalid");
        }
        for user in ["4294967295", "far", "70000", "1:70000", "0:4294967295"] {
            assert!(of(Some(user)).unwrap_err().to_string().contains("above 65535"), "{user}");
        }
    }

    /// Only shells that exist and allow a login are chosen.
    #[test]
    fn find_shell_skips_missing_ones() {
        let root = tempfile::tempdir().unwrap();
        let found = |wanted: &str| find_shell(root.path(), Some(Path::new(wanted)));
        assert_eq!(found("/bin/bash"), None);
        for name in ["bin/sh", "opt/fish", "usr/sbin/nologin"] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(found("/opt/fish"), Some("/opt/fish".into()));
        for wanted in ["/bin/bash", "/usr/sbin/nologin", "", "sh"] {
            assert_eq!(found(wanted), Some("/bin/sh".into()), "{wanted}");
        }
    }

    /// Home and working directories of images are resolved.
    #[test]
    fn homes_and_directories_resolve() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        let with = |user: &str, home: &str| Image {
            user: Some(user.into()),
            environment: vec![("HOME".into(), home.into())],
            directory: Some("/work".into()),
        };
        let home = |image: &Image| resolve_image_account(root.path(), &Accounts::default(), image).unwrap().home;
        assert_eq!(home(&image(Some("5"))), root.path().join("home/5"));
        assert_eq!(home(&image(Some("0"))), root.path());
        assert_eq!(home(&with("5", "/work")), root.path().join("work"));
        assert_eq!(home(&with("5", "/file")), root.path(), "a file is not a home");
        std::fs::write(root.path().join("home"), "").unwrap();
        assert_eq!(home(&image(Some("5"))), root.path(), "/home is not a directory");
        assert_eq!(image_directory(root.path(), &with("5", "/")), Some(root.path().join("work")));
        for nowhere in ["/file", "/missing", "relative", ""] {
            let image = Image { directory: Some(nowhere.into()), ..Image::default() };
            assert_eq!(image_directory(root.path(), &image), None, "{nowhere}");
        }
    }
}
