//! The users and groups of the image: the host's system accounts by name and id, because they own the files in `/usr`,
//! and `ubuntu`. Passwords are not copied, and no account can log in with one.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::local::host::files;

/// The user of an instance.
const USER: &str = "ubuntu";

/// The user and group id.
const USER_ID: u32 = 1_000;

const NOBODY: u32 = 65_534;

/// The group whose members may become `root`, if the host has none.
const SUDO: (&str, u32) = ("sudo", 27);

/// The groups of the user, as far as they exist.
const GROUPS: &[&str] = &["adm", "audio", "cdrom", "dip", "floppy", "plugdev", "render", "sudo", "video"];

pub(super) fn build_accounts(root: &Path) -> io::Result<()> {
    let etc = root.join("etc");
    let users = system_users(&fs::read_to_string("/etc/passwd")?);
    let groups = system_groups(&fs::read_to_string("/etc/group")?);
    let locked = |lines: &str, rest: &str| -> String {
        lines.lines().filter_map(|line| line.split(':').next()).map(|name| format!("{name}:*:{rest}\n")).collect()
    };
    let write = |name: &str, text: &str, mode: u32| -> io::Result<()> {
        fs::write(etc.join(name), text)?;
        fs::set_permissions(etc.join(name), fs::Permissions::from_mode(mode))
    };
    write("passwd", &users, 0o644)?;
    write("group", &groups, 0o644)?;
    write("shadow", &locked(&users, "20000:0:99999:7:::"), 0o640)?;
    write("gshadow", &locked(&groups, ":"), 0o640)?;
    let home = root.join("home").join(USER);
    files::ensure_directory(&home, 0o750)?;
    chown(home, Some(USER_ID), Some(USER_ID))
}

fn system_users(host: &str) -> String {
    let mut users = String::new();
    for fields in system_accounts(host, 7) {
        let [name, _, id, group, words, home, shell] = fields[..] else { continue };
        let shell = if name == "root" { "/bin/bash" } else { shell };
        users.push_str(&format!("{name}:x:{id}:{group}:{words}:{home}:{shell}\n"));
    }
    users.push_str(&format!("{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/bash\n"));
    users
}

fn system_groups(host: &str) -> String {
    let mut groups = String::new();
    let mut seen_sudo = false;
    let line = |name: &str, id: &str| {
        let member = if GROUPS.contains(&name) { USER } else { "" };
        format!("{name}:x:{id}:{member}\n")
    };
    for fields in system_accounts(host, 4) {
        let [name, _, id, _] = fields[..] else { continue };
        seen_sudo |= name == SUDO.0;
        groups.push_str(&line(name, id));
    }
    if !seen_sudo {
        groups.push_str(&line(SUDO.0, &SUDO.1.to_string()));
    }
    groups.push_str(&format!("{USER}:x:{USER_ID}:\n"));
    groups
}

/// Returns the accounts of the distribution and its packages. People have higher ids and are left out.
fn system_accounts(host: &str, fields: usize) -> impl Iterator<Item = Vec<&str>> {
    host.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(move |account| {
        let id = account.get(2).and_then(|id| id.parse::<u32>().ok());
        account.len() == fields && account[0] != USER && id.is_some_and(|id| id < USER_ID || id == NOBODY)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_and_passwords_are_not_copied() {
        let made = system_users(
            "root:$6$hash:0:0:root:/root:/bin/zsh\nanna:x:1001:1001:Anna:/home/anna:/bin/bash\nnobody:x:65534:65534:n:/:/x\n",
        );
        assert_eq!(
            made,
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:n:/:/x\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n"
        );
        let made = system_groups("root:x:0:\nvideo:x:44:anna\nanna:x:1001:\n");
        assert_eq!(made, "root:x:0:\nvideo:x:44:ubuntu\nsudo:x:27:ubuntu\nubuntu:x:1000:\n");
    }
}
