//! Runs a program as another user.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Mode;
use rustix::process::{Gid, Uid};
use tarn_base::plain;

use super::arguments::{Action, SudoRequest, usage};
use super::environment::{self, PATH};
use crate::configuration;
use crate::users::images;
use crate::users::{Account, Accounts};

/// The user that may run everything if there is no image, besides root and the members of the group `sudo`.
const USER: &str = "ubuntu";

/// Executes a request; returns only if no program was run.
pub(super) fn execute_request(request: SudoRequest) -> Result<(), String> {
    match request.action {
        Action::Version => {
            println!("Sudo of the Tarn guest, version {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Action::Help => {
            println!("{}", usage());
            return Ok(());
        }
        Action::Run | Action::List | Action::Validate => {}
    }
    if !rustix::process::geteuid().is_root() {
        return Err("sudo must be owned by uid 0 and have the setuid bit set".into());
    }
    let root = Path::new("/");
    let caller_id = rustix::process::getuid().as_raw();
    // The user of an image may have no entry.
    let (accounts, user) = match configuration::load_image(root) {
        Some(image) => {
            let accounts = Accounts::load_lenient(root);
            let user = images::resolve_image_account(root, &accounts, &image).ok();
            (accounts, user)
        }
        None => {
            let accounts = Accounts::load(root).map_err(|e| format!("unable to read /etc/passwd: {e}"))?;
            let user = accounts.find_by_name(USER);
            (accounts, user)
        }
    };
    let user = user.filter(|user| user.uid == caller_id);
    let caller =
        accounts.find_by_uid(caller_id).or_else(|| user.clone()).ok_or("you do not exist in the passwd database")?;
    if user.is_none() && !may_use_sudo(&accounts, &caller) {
        return Err(format!("{} is not allowed to run sudo here", caller.name));
    }
    match request.action {
        Action::List => {
            println!("User {} may run the following commands here:\n    (ALL : ALL) NOPASSWD: ALL", caller.name);
            Ok(())
        }
        Action::Validate if request.command.is_empty() => Ok(()),
        _ => Err(exec_program(&accounts, &caller, &request)?),
    }
}

/// The groups of the account count, not those of the calling process.
fn may_use_sudo(accounts: &Accounts, caller: &Account) -> bool {
    let is_member = accounts.find_gid("sudo").is_some_and(|group| caller.groups.contains(&group));
    caller.uid == 0 || is_member
}

/// Replaces this process by the program; returns the error message if that fails.
fn exec_program(accounts: &Accounts, caller: &Account, request: &SudoRequest) -> Result<String, String> {
    let target = find_target_account(accounts, request)?;
    let group = match &request.group {
        Some(name) => Some(find_group_id(accounts, name)?),
        None => None,
    };
    let shell = if request.login { target.shell.clone() } else { caller_shell(caller, request, &target) };
    let (program, name, arguments) = if request.login || request.shell {
        let name = shell.file_name().unwrap_or(shell.as_os_str());
        let name = if request.login { [OsStr::new("-"), name].join(OsStr::new("")) } else { name.to_owned() };
        (shell, name, shell_arguments(&request.command))
    } else {
        let (first, rest) = request.command.split_first().ok_or("a command is required")?;
        (find_on_trusted_path(first)?, first.clone(), rest.to_vec())
    };
    let command_line = std::iter::once(program.as_os_str()).chain(arguments.iter().map(OsString::as_os_str));
    let command_line = command_line.collect::<Vec<_>>().join(OsStr::new(" "));
    let variables = environment::build_sudo_environment(request, caller, &target, std::env::vars_os(), &command_line);
    let mut command = Command::new(&program);
    command.arg0(name).args(arguments).env_clear().envs(variables);
    become_user(&target, group)?;
    // As the target user, which may not be allowed to enter it.
    if let Some(directory) = &request.directory {
        rustix::process::chdir(directory.as_os_str())
            .map_err(|e| format!("unable to change directory to {}: {e}", directory.display()))?;
    } else if request.login && rustix::process::chdir(target.home.as_os_str()).is_err() {
        eprintln!("sudo: unable to change directory to {}", target.home.display());
    }
    let error = command.exec();
    Ok(format!("unable to execute {}: {error}", program.display()))
}

fn find_target_account(accounts: &Accounts, request: &SudoRequest) -> Result<Account, String> {
    let name = request.user.as_deref().unwrap_or("root");
    let found = match name.strip_prefix('#') {
        Some(number) => number.parse().ok().and_then(|uid| accounts.find_by_uid(uid)),
        // Root always exists, even if the image has no entry for it.
        None if name == "root" => {
            images::resolve_image_account(Path::new("/"), accounts, &tarn_link::Image::default()).ok()
        }
        None => accounts.find_by_name(name),
    };
    found.ok_or_else(|| format!("unknown user {}", plain(name, 200)))
}

fn find_group_id(accounts: &Accounts, name: &str) -> Result<u32, String> {
    let found = match name.strip_prefix('#') {
        Some(number) => number.parse().ok(),
        None => accounts.find_gid(name),
    };
    found.ok_or_else(|| format!("unknown group {}", plain(name, 200)))
}

/// Returns the shell of `-s`: the caller's, unless another user is named.
fn caller_shell(caller: &Account, request: &SudoRequest, target: &Account) -> PathBuf {
    if request.user.is_none() { caller.shell.clone() } else { target.shell.clone() }
}

/// Joins a command into one line for a shell, and escapes all special characters.
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

/// Finds a program on the trusted path, or at the caller's path.
fn find_on_trusted_path(name: &OsStr) -> Result<PathBuf, String> {
    let is_executable_file =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let missing = || format!("{}: command not found", name.display());
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if is_executable_file(&path) { Ok(path) } else { Err(missing()) };
    }
    PATH.split(':')
        .map(|directory| Path::new(directory).join(name))
        .find(|path| is_executable_file(path))
        .ok_or_else(missing)
}

/// This process has one thread, so the ids of the thread are those of the process.
fn become_user(target: &Account, group: Option<u32>) -> Result<(), String> {
    let gid = Gid::from_raw(group.unwrap_or(target.gid));
    let groups: Vec<Gid> = target.groups.iter().chain(&group).map(|gid| Gid::from_raw(*gid)).collect();
    let uid = Uid::from_raw(target.uid);
    rustix::thread::set_thread_groups(&groups)
        .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(|e| format!("unable to become {}: {e}", target.name))?;
    // Adds the default mask to the caller's.
    let usual = Mode::WGRP | Mode::WOTH;
    let before = rustix::process::umask(usual);
    rustix::process::umask(before | usual);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words reach a shell unchanged.
    #[test]
    fn shell_arguments_are_escaped() {
        let words: Vec<OsString> = ["echo", "a b", "x;y", "$HOME", "ä"].iter().map(Into::into).collect();
        assert_eq!(shell_arguments(&words), ["-c", "echo a\\ b x\\;y $HOME ä"]);
        assert!(shell_arguments(&[]).is_empty());
    }

    /// Programs are found on the trusted path.
    #[test]
    fn programs_come_from_trusted_path() {
        assert!(find_on_trusted_path(OsStr::new("sh")).is_ok());
        assert_eq!(
            find_on_trusted_path(OsStr::new("no-such-program")),
            Err("no-such-program: command not found".into())
        );
        assert!(find_on_trusted_path(OsStr::new("/")).is_err());
    }
}
