//! Users and groups, read from `/etc/passwd` and `/etc/group` by hand: a static program cannot load the plugins of the C
//! library, and an instance has no others.

use std::io;
use std::path::{Path, PathBuf};

use tarn_link::Image;

use crate::images;

/// The longest file that is read.
const MAX_FILE: u64 = 4 << 20;

/// The most groups that a user is in; the kernel takes more, but not without end.
const MAX_GROUPS: usize = 4096;

/// The number by which the kernel is told to change nothing. Whoever became it would stay who he was.
const NO_ID: u32 = u32::MAX;

/// A user who can run programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's first group.
    pub gid: u32,
    /// The numbers of all groups the user is in.
    pub groups: Vec<u32>,
    /// The home directory.
    pub home: PathBuf,
    /// The login shell.
    pub shell: PathBuf,
}

/// All users and groups.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    users: Vec<Account>,
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

impl Accounts {
    /// Reads the files below a root. Homes are below that root too.
    pub fn read(root: &Path) -> io::Result<Self> {
        let passwd = read_text(&root.join("etc/passwd"))?;
        let group = match read_text(&root.join("etc/group")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        Ok(Self::parse(root, &passwd, &group))
    }

    /// Understands the texts; lines that are not understood are passed over, as the C library does.
    pub fn parse(root: &Path, passwd: &str, group: &str) -> Self {
        let groups = group.lines().filter_map(parse_group).collect();
        let users = passwd.lines().filter_map(|line| parse_user(root, line)).collect();
        Accounts { users, groups }
    }

    /// What an image has of them: files that are missing or cannot be read say nothing.
    pub(crate) fn of_image(root: &Path) -> Self {
        let text = |name: &str| read_text(&root.join(name)).unwrap_or_default();
        Self::parse(root, &text("etc/passwd"), &text("etc/group"))
    }

    /// The user of a name.
    pub fn named(&self, name: &str) -> Option<Account> {
        self.users.iter().find(|user| user.name == name).map(|user| self.with_groups(user))
    }

    /// The first user with a number.
    pub fn numbered(&self, uid: u32) -> Option<Account> {
        self.users.iter().find(|user| user.uid == uid).map(|user| self.with_groups(user))
    }

    /// The name of the first user with a number.
    pub(crate) fn name_of(&self, uid: u32) -> Option<&str> {
        self.users.iter().find(|user| user.uid == uid).map(|user| user.name.as_str())
    }

    /// The groups are looked for when somebody is, and not for all: an image may have a hundred thousand of both.
    fn with_groups(&self, user: &Account) -> Account {
        let also = self.groups.iter().filter(|group| group.members.contains(&user.name)).map(|group| group.gid);
        let also = also.filter(|gid| *gid != user.gid);
        Account { groups: std::iter::once(user.gid).chain(also).take(MAX_GROUPS).collect(), ..user.clone() }
    }

    /// The number of the group of a name.
    pub fn group_named(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|group| group.name == name).map(|group| group.gid)
    }

    /// The name of the first group with a number.
    pub fn group_numbered(&self, gid: u32) -> Option<&str> {
        self.groups.iter().find(|group| group.gid == gid).map(|group| group.name.as_str())
    }
}

/// The user that sessions and jobs run as: the one of a name, or whom the image says.
pub fn of_sessions(root: &Path, user: &str, image: Option<&Image>) -> io::Result<Account> {
    match image {
        Some(image) => images::account(root, &Accounts::of_image(root), image),
        None => {
            let found = Accounts::read(root)?.named(user);
            found.ok_or_else(|| io::Error::other(format!("the instance has no user {user}")))
        }
    }
}

fn parse_user(root: &Path, line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields.as_slice() else { return None };
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let shell = if shell.is_empty() { "/bin/sh" } else { shell };
    Some(Account {
        name: (*name).into(),
        uid: parse_id(uid)?,
        gid: parse_id(gid)?,
        groups: Vec::new(),
        home: root.join(home.trim_start_matches('/')),
        shell: shell.into(),
    })
}

fn parse_group(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members] = fields.as_slice() else { return None };
    let members = members.split(',').filter(|member| !member.is_empty()).map(Into::into).collect();
    Some(Group { name: (*name).into(), gid: parse_id(gid)?, members })
}

fn parse_id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != NO_ID)
}

fn read_text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&crate::bounded::read(path, MAX_FILE)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_in_all_groups_that_name_him() {
        let passwd = "root:x:0:0::/root:/bin/bash\nbroken\n#no:x:1:1::/:/\nubuntu:x:1000:1001::/home/ubuntu:\n";
        let group = "sudo:x:27:ubuntu,other\nvideo:x:44:other,ubuntu\nubuntu:x:1001:ubuntu\nempty:x:9:\n";
        let accounts = Accounts::parse(Path::new("/"), passwd, group);
        let user = accounts.named("ubuntu").unwrap();
        assert_eq!((user.uid, user.gid), (1000, 1001));
        assert_eq!(user.groups, [1001, 27, 44]);
        assert_eq!(user.home, Path::new("/home/ubuntu"));
        assert_eq!(user.shell, Path::new("/bin/sh"));
        assert_eq!(accounts.numbered(0).unwrap().groups, [0]);
        assert_eq!(accounts.group_named("video"), Some(44));
        assert!(accounts.named("#no").is_none());
        assert!(accounts.named("broken").is_none());
    }
}
