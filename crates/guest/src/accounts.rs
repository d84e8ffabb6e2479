//! Users and groups, read from `/etc/passwd` and `/etc/group` by hand: a static program cannot load the plugins of the C
//! library, and an instance has no others.

use std::io;
use std::path::{Path, PathBuf};

/// The longest file that is read.
const MAX_FILE: u64 = 4 << 20;

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
        let groups: Vec<Group> = group.lines().filter_map(parse_group).collect();
        let mut users: Vec<Account> = passwd.lines().filter_map(|line| parse_user(root, line)).collect();
        for user in &mut users {
            let also = groups.iter().filter(|group| group.members.contains(&user.name)).map(|group| group.gid);
            user.groups = std::iter::once(user.gid).chain(also.filter(|gid| *gid != user.gid)).collect();
        }
        Accounts { users, groups }
    }

    /// The user of a name.
    pub fn named(&self, name: &str) -> Option<&Account> {
        self.users.iter().find(|user| user.name == name)
    }

    /// The first user with a number.
    pub fn numbered(&self, uid: u32) -> Option<&Account> {
        self.users.iter().find(|user| user.uid == uid)
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

fn parse_user(root: &Path, line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields.as_slice() else { return None };
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let shell = if shell.is_empty() { "/bin/sh" } else { shell };
    Some(Account {
        name: (*name).into(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        groups: Vec::new(),
        home: root.join(home.trim_start_matches('/')),
        shell: shell.into(),
    })
}

fn parse_group(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members] = fields.as_slice() else { return None };
    let members = members.split(',').filter(|member| !member.is_empty()).map(Into::into).collect();
    Some(Group { name: (*name).into(), gid: gid.parse().ok()?, members })
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
