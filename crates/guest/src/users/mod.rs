//! The users and groups of an instance, read from `/etc/passwd` and `/etc/group` directly: a static program cannot load
//! the plugins of the C library, and an instance has no other sources. `images` decides which user an instance of a
//! container image has.

pub(crate) mod images;

use std::io;
use std::path::{Path, PathBuf};

use tarn_link::Image;

/// The maximum length of a file that is read.
const MAX_FILE: u64 = 4 << 20;

/// The maximum number of groups of a user.
const MAX_GROUPS: usize = 4096;

/// The id that tells the kernel to change nothing; a process that switched to it would keep its rights.
const NO_ID: u32 = u32::MAX;

/// A user that can run programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All groups of the user, the primary one first.
    pub groups: Vec<u32>,
    pub home: PathBuf,
    pub shell: PathBuf,
}

/// All users and groups of an instance.
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
    /// Reads the files below a root; home directories are below that root as well.
    pub fn load(root: &Path) -> io::Result<Self> {
        let passwd = read_text(&root.join("etc/passwd"))?;
        let group = match read_text(&root.join("etc/group")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            other => other?,
        };
        Ok(Self::parse(root, &passwd, &group))
    }

    /// Parses the files; lines that cannot be parsed are skipped, as the C library does.
    pub fn parse(root: &Path, passwd: &str, group: &str) -> Self {
        let groups = group.lines().filter_map(parse_group).collect();
        let users = passwd.lines().filter_map(|line| parse_user(root, line)).collect();
        Accounts { users, groups }
    }

    /// Like [`Accounts::load`], but files that are missing or unreadable count as empty.
    pub(crate) fn load_lenient(root: &Path) -> Self {
        let text = |name: &str| read_text(&root.join(name)).unwrap_or_default();
        Self::parse(root, &text("etc/passwd"), &text("etc/group"))
    }

    /// Finds a user by name.
    pub fn find_by_name(&self, name: &str) -> Option<Account> {
        self.users.iter().find(|user| user.name == name).map(|user| self.with_groups(user))
    }

    /// Finds the first user with an id.
    pub fn find_by_uid(&self, uid: u32) -> Option<Account> {
        self.users.iter().find(|user| user.uid == uid).map(|user| self.with_groups(user))
    }

    /// Returns the name of the first user with an id.
    pub(crate) fn user_name(&self, uid: u32) -> Option<&str> {
        self.users.iter().find(|user| user.uid == uid).map(|user| user.name.as_str())
    }

    /// Groups are resolved per user and not for all: an image may have a hundred thousand of both.
    fn with_groups(&self, user: &Account) -> Account {
        let additional = self.groups.iter().filter(|group| group.members.contains(&user.name)).map(|group| group.gid);
        let additional = additional.filter(|gid| *gid != user.gid);
        Account { groups: std::iter::once(user.gid).chain(additional).take(MAX_GROUPS).collect(), ..user.clone() }
    }

    /// Finds the id of a group by name.
    pub fn find_gid(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|group| group.name == name).map(|group| group.gid)
    }

    /// Returns the name of the first group with an id.
    pub fn group_name(&self, gid: u32) -> Option<&str> {
        self.groups.iter().find(|group| group.gid == gid).map(|group| group.name.as_str())
    }
}

/// Finds the user that sessions and jobs run as: the given one, or the user of the image.
pub fn find_session_account(root: &Path, user: &str, image: Option<&Image>) -> io::Result<Account> {
    match image {
        Some(image) => images::resolve_image_account(root, &Accounts::load_lenient(root), image),
        None => {
            let found = Accounts::load(root)?.find_by_name(user);
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
    Ok(String::from_utf8_lossy(&crate::filesystem::read_bounded(path, MAX_FILE)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A user is in every group that lists the user.
    #[test]
    fn groups_include_all_memberships() {
        let passwd = "root:x:0:0::/root:/bin/bash\nbroken\n#no:x:1:1::/:/\nubuntu:x:1000:1001::/home/ubuntu:\n";
        let group = "sudo:x:27:ubuntu,other\nvideo:x:44:other,ubuntu\nubuntu:x:1001:ubuntu\nempty:x:9:\n";
        let accounts = Accounts::parse(Path::new("/"), passwd, group);
        let user = accounts.find_by_name("ubuntu").unwrap();
        assert_eq!((user.uid, user.gid), (1000, 1001));
        assert_eq!(user.groups, [1001, 27, 44]);
        assert_eq!(user.home, Path::new("/home/ubuntu"));
        assert_eq!(user.shell, Path::new("/bin/sh"));
        assert_eq!(accounts.find_by_uid(0).unwrap().groups, [0]);
        assert_eq!(accounts.find_gid("video"), Some(44));
        assert!(accounts.find_by_name("#no").is_none());
        assert!(accounts.find_by_name("broken").is_none());
    }
}
