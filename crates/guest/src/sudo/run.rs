//! Becoming another user and his program.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};

use super::arguments::{Action, Request, usage};
use super::environment::{self, PATH};
use crate::accounts::{Account, Accounts};
use crate::{configuration, images};

/// The user who may do everything, besides root and the members of the group `sudo`, where no image says who.
const USER: &str = "ubuntu";

/// Does what is asked; returns only if no program was run.
pub(super) fn run(request: Request) -> Result<(), String> {
    match request.action {
        Action::Version => {
            println!("Sudo of the Tarn guest, version {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Action::Help => {
            println!("{}", usage());
            return Ok(());
        }
        Action::Run | Action::List | Action::Nothing => {}
    }
    if !rustix::process::geteuid().is_root() {
        return Err("sudo must be owned by uid 0 and have the setuid bit set".into());
    }
    let root = Path::new("/");
    let caller_id = rustix::process::getuid().as_raw();
    // The user of an image need not be written down anywhere.
    let (accounts, user) = match configuration::image(root) {
        Some(image) => {
            let accounts = Accounts::of_image(root);
            let user = images::account(root, &accounts, &image).ok();
            (accounts, user)
        }
        None => {
            let accounts = Accounts::read(root).map_err(|e| format!("unable to read /etc/passwd: {e}"))?;
            let user = accounts.named(USER);
            (accounts, user)
        }
    };
    let user = user.filter(|user| user.uid == caller_id);
    let caller =
        accounts.numbered(caller_id).or_else(|| user.clone()).ok_or("you do not exist in the passwd database")?;
    if user.is_none() && !may_use(&accounts, &caller) {
        return Err(format!("{} is not allowed to run sudo here", caller.name));
    }
    match request.action {
        Action::List => {
            println!("User {} may run the following commands here:\n    (ALL : ALL) NOPASSWD: ALL", caller.name);
            Ok(())
        }
        Action::Nothing if request.command.is_empty() => Ok(()),
        _ => Err(become_program(&accounts, &caller, &request)?),
    }
}

/// The account's groups count, not those that the calling process happens to have.
fn may_use(accounts: &Accounts, caller: &Account) -> bool {
    let is_member = accounts.group_named("sudo").is_some_and(|group| caller.groups.contains(&group));
    caller.uid == 0 || is_member
}

/// Runs the program in place of this one; if it returns, with the words of what went wrong.
fn become_program(accounts: &Accounts, caller: &Account, request: &Request) -> Result<String, String> {
    let target = target(accounts, request)?;
    let group = match &request.group {
        Some(name) => Some(group(accounts, name)?),
        None => None,
    };
    let shell = if request.login { target.shell.clone() } else { caller_shell(caller, request, &target) };
    let (program, name, arguments) = if request.login || request.shell {
        let name = shell.file_name().unwrap_or(shell.as_os_str());
        let name = if request.login { [OsStr::new("-"), name].join(OsStr::new("")) } else { name.to_owned() };
        (shell, name, shell_arguments(&request.command))
    } else {
        let (first, rest) = request.command.split_first().ok_or("a command is required")?;
        (find(first)?, first.clone(), rest.to_vec())
    };
    let told = std::iter::once(program.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
    let told = told.collect::<Vec<_>>().join(OsStr::new(" "));
    let variables = environment::build(request, caller, &target, std::env::vars_os(), &told);
    let mut command = Command::new(&program);
    command.arg0(name).args(arguments).env_clear().envs(variables);
    become_user(&target, group)?;
    // As the other user: he may not be allowed to go there.
    if let Some(directory) = &request.directory {
        rustix::process::chdir(directory.as_os_str())
            .map_err(|e| format!("unable to change directory to {}: {e}", directory.display()))?;
    } else if request.login && rustix::process::chdir(target.home.as_os_str()).is_err() {
        eprintln!("sudo: unable to change directory to {}", target.home.display());
    }
    let error = command.exec();
    Ok(format!("unable to execute {}: {error}", program.display()))
}

fn target(accounts: &Accounts, request: &Request) -> Result<Account, String> {
    let name = request.user.as_deref().unwrap_or("root");
    let found = match name.strip_prefix('#') {
        Some(number) => number.parse().ok().and_then(|uid| accounts.numbered(uid)),
        // There is always one, though an image may not have written him down.
        None if name == "root" => images::account(Path::new("/"), accounts, &tarn_link::Image::default()).ok(),
        None => accounts.named(name),
    };
    found.ok_or_else(|| format!("unknown user {}", name.escape_default()))
}

fn group(accounts: &Accounts, name: &str) -> Result<u32, String> {
    let found = match name.strip_prefix('#') {
        Some(number) => number.parse().ok(),
        None => accounts.group_named(name),
    };
    found.ok_or_else(|| format!("unknown group {}", name.escape_default()))
}

/// The shell of `-s` is the caller's, unless he wants to be somebody else without one.
fn caller_shell(caller: &Account, request: &Request, target: &Account) -> PathBuf {
    if request.user.is_none() { caller.shell.clone() } else { target.shell.clone() }
}

/// A command goes to a shell as one line, in which everything that a shell would understand is protected.
fn shell_arguments(command: &[OsString]) -> Vec<OsString> {
    if command.is_empty() {
        return Vec::new();
    }
    let mut line = Vec::new();
    for (index, word) in command.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        for byte in word.as_bytes() {
            if !byte.is_ascii_alphanumeric() && !b"_-$/.".contains(byte) && byte.is_ascii() {
                line.push(b'\\');
            }
            line.push(*byte);
        }
    }
    vec!["-c".into(), OsString::from_vec(line)]
}

/// Finds a program on the trusted path, or where the caller says it is.
fn find(name: &OsStr) -> Result<PathBuf, String> {
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let missing = || format!("{}: command not found", name.display());
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if is_program(&path) { Ok(path) } else { Err(missing()) };
    }
    PATH.split(':').map(|directory| Path::new(directory).join(name)).find(|path| is_program(path)).ok_or_else(missing)
}

/// This process has one thread, so what the kernel keeps for a thread holds for all of it.
fn become_user(target: &Account, group: Option<u32>) -> Result<(), String> {
    let gid = Gid::from_raw(group.unwrap_or(target.gid));
    let groups: Vec<Gid> = target.groups.iter().chain(&group).map(|gid| Gid::from_raw(*gid)).collect();
    let uid = Uid::from_raw(target.uid);
    rustix::thread::set_thread_groups(&groups)
        .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(|e| format!("unable to become {}: {e}", target.name))?;
    // Never more open than usual, but as closed as the caller wants it.
    let usual = Mode::WGRP | Mode::WOTH;
    let before = rustix::process::umask(usual);
    rustix::process::umask(before | usual);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_a_shell_as_they_are() {
        let words: Vec<OsString> = ["echo", "a b", "x;y", "$HOME", "ä"].iter().map(Into::into).collect();
        assert_eq!(shell_arguments(&words), ["-c", "echo a\\ b x\\;y $HOME ä"]);
        assert!(shell_arguments(&[]).is_empty());
    }

    #[test]
    fn programs_are_found_on_the_trusted_path() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert_eq!(find(OsStr::new("no-such-program")), Err("no-such-program: command not found".into()));
        assert!(find(OsStr::new("/")).is_err());
    }
}
