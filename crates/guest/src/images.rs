//! Instances of container images: who runs programs there, with which shell, and where they begin.
//!
//! An image may have any user or none, and files of users that are missing, enormous or nonsense. Whatever it has, somebody can
//! log in: what cannot be read counts as missing, and a number that nobody wrote down is a user all the same. Nothing is written
//! for that. Only a name that nobody wrote down is nobody's, and is refused.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tarn_link::Image;

use crate::accounts::{Account, Accounts};

/// Where a shell may be, the best first.
const SHELLS: [&str; 4] = ["/bin/bash", "/usr/bin/bash", "/bin/sh", "/usr/bin/sh"];

/// Shells that let nobody in. They keep people from service accounts on machines that several share, and say nothing about
/// whoever has an instance for himself.
const CLOSED: [&str; 2] = ["nologin", "false"];

/// The largest number that a user or a group of an instance has.
const MAX_ID: u32 = 65_535;

/// The most variables of an image that its programs get.
const MAX_VARIABLES: usize = 4096;

/// The account that programs of an image run as.
pub(crate) fn account(root: &Path, accounts: &Accounts, image: &Image) -> io::Result<Account> {
    let whole = image.user.as_deref().unwrap_or_default();
    let (user, group) = whole.split_once(':').unwrap_or((whole, ""));
    let (user, group) = (if user.is_empty() { "root" } else { user }, Some(group).filter(|group| !group.is_empty()));
    let number = if user == "root" { Some(0) } else { user.parse().ok() };
    let mut account = match (accounts.named(user), number) {
        (Some(known), _) => known,
        (None, Some(uid)) => accounts.numbered(uid).unwrap_or_else(|| made_up(root, image, uid)),
        (None, None) => return Err(unknown(user)),
    };
    if let Some(group) = group {
        let number = accounts.group_named(group).or_else(|| group.parse().ok());
        let number = number.ok_or_else(|| io::Error::other(format!("the image has no group {}", shown(group))))?;
        // Who names his group is in no other.
        (account.gid, account.groups) = (number, vec![number]);
    }
    if account.uid > MAX_ID || account.gid > MAX_ID {
        let who = shown(&account.name);
        let words = format!("the image's user {who} has a number above {MAX_ID}, which an instance does not have");
        return Err(io::Error::other(words));
    }
    account.groups.retain(|group| *group <= MAX_ID);
    account.shell = shell(root, Some(&account.shell)).unwrap_or_else(|| "/bin/sh".into());
    // A home that is none would keep everybody out.
    if !account.home.is_dir() && account.home.symlink_metadata().is_ok() {
        account.home = root.to_owned();
    }
    Ok(account)
}

/// What is said of a name that the image does not know.
fn unknown(user: &str) -> io::Error {
    io::Error::other(format!(
        "the image has no user {}, whom its USER names: its /etc/passwd needs a line for him, or USER a number",
        shown(user)
    ))
}

/// A user of whom the image knows nothing but his number.
fn made_up(root: &Path, image: &Image, uid: u32) -> Account {
    let name = if uid == 0 { "root".to_owned() } else { uid.to_string() };
    let given = image.environment.iter().find(|(name, _)| name == "HOME").map(|(_, home)| home.as_str());
    let given = given.filter(|home| home.starts_with('/') && !home.contains('\0'));
    let homes = root.join("home");
    let usual = match uid {
        0 if root.join("root").is_dir() => "/root".to_owned(),
        // One that he may write, which is made when the instance starts.
        1.. if homes.is_dir() || homes.symlink_metadata().is_err() => format!("/home/{uid}"),
        _ => "/".to_owned(),
    };
    let home = root.join(given.unwrap_or(&usual).trim_start_matches('/'));
    Account { name, uid, gid: 0, groups: vec![0], home, shell: PathBuf::new() }
}

/// The shell of a user, if he has one that lets him in, or else the best there is; none if the image has none.
pub(crate) fn shell(root: &Path, wanted: Option<&Path>) -> Option<PathBuf> {
    let is_open = |shell: &&Path| !CLOSED.iter().any(|closed| shell.file_name().is_some_and(|name| name == *closed));
    let is_there =
        |shell: &Path| shell.is_absolute() && is_program(&root.join(shell.strip_prefix("/").unwrap_or(shell)));
    let all = wanted.filter(is_open).into_iter().chain(SHELLS.iter().map(Path::new));
    all.into_iter().find(|shell| is_there(shell)).map(Path::to_owned)
}

/// Whether something can be run.
pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Where sessions begin, if the image says so and it is there.
pub(crate) fn directory(root: &Path, image: &Image) -> Option<PathBuf> {
    let named =
        image.directory.as_deref().filter(|directory| directory.starts_with('/') && !directory.contains('\0'))?;
    Some(root.join(named.trim_start_matches('/'))).filter(|directory| directory.is_dir())
}

/// The variables of an image that can be variables.
pub(crate) fn variables(image: &Image) -> impl Iterator<Item = (&str, &str)> {
    let good = |name: &str, value: &str| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    let all = image.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(move |(name, value)| good(name, value)).take(MAX_VARIABLES)
}

/// A word of the image's, for a person.
fn shown(word: &str) -> String {
    word.escape_default().take(80).collect()
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
        account(root.path(), &accounts, &image(user)).map(|found| (found.name, found.uid, found.groups))
    }

    #[test]
    fn every_way_to_name_a_user() {
        assert_eq!(of(None).unwrap(), ("root".into(), 0, vec![0]));
        assert_eq!(of(Some("app")).unwrap(), ("app".into(), 1000, vec![1001, 44]), "unknown numbers are left out");
        assert_eq!(of(Some("1000")).unwrap().0, "app");
        assert_eq!(of(Some("app:staff")).unwrap(), ("app".into(), 1000, vec![50]));
        assert_eq!(of(Some("1000:7")).unwrap().2, [7]);
        assert_eq!(of(Some("4711")).unwrap(), ("4711".into(), 4711, vec![0]));
        assert_eq!(of(Some(":7")).unwrap(), ("root".into(), 0, vec![7]));
        for nobody in ["ghost", "a\nb", "ghost:staff"] {
            let said = of(Some(nobody)).unwrap_err().to_string();
            assert!(said.contains("the image has no user") && said.contains("USER") && !said.contains('\n'), "{said}");
        }
        assert!(of(Some("app:nowhere")).unwrap_err().to_string().contains("no group nowhere"));
    }

    #[test]
    fn nobody_becomes_root_by_a_number_that_means_nothing() {
        for user in ["evil", "minus", "-1"] {
            assert!(of(Some(user)).unwrap_err().to_string().contains("no user"), "{user}: the line says nothing");
        }
        for user in ["4294967295", "far", "70000", "1:70000", "0:4294967295"] {
            assert!(of(Some(user)).unwrap_err().to_string().contains("above 65535"), "{user}");
        }
    }

    #[test]
    fn shells_are_those_that_are_there() {
        let root = tempfile::tempdir().unwrap();
        let found = |wanted: &str| shell(root.path(), Some(Path::new(wanted)));
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

    #[test]
    fn homes_and_directories() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        std::fs::create_dir(root.path().join("work")).unwrap();
        let with = |user: &str, home: &str| Image {
            user: Some(user.into()),
            environment: vec![("HOME".into(), home.into())],
            directory: Some("/work".into()),
        };
        let home = |image: &Image| account(root.path(), &Accounts::default(), image).unwrap().home;
        assert_eq!(home(&image(Some("5"))), root.path().join("home/5"));
        assert_eq!(home(&image(Some("0"))), root.path());
        assert_eq!(home(&with("5", "/work")), root.path().join("work"));
        assert_eq!(home(&with("5", "/file")), root.path(), "a file is no home");
        std::fs::write(root.path().join("home"), "").unwrap();
        assert_eq!(home(&image(Some("5"))), root.path(), "there can be no homes");
        assert_eq!(directory(root.path(), &with("5", "/")), Some(root.path().join("work")));
        for nowhere in ["/file", "/missing", "relative", ""] {
            let image = Image { directory: Some(nowhere.into()), ..Image::default() };
            assert_eq!(directory(root.path(), &image), None, "{nowhere}");
        }
    }
}
