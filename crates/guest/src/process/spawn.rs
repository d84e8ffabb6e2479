//! What happens in a new process between fork and exec: its session, its terminal, and the ids of the user.
//!
//! This is the only unsafe code that runs after a fork. The closure makes system calls and reads memory that was
//! prepared before the fork; it neither allocates nor locks.
#![allow(unsafe_code, reason = "std marks everything between fork and exec as unsafe")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::users::Account;

/// Makes a command run as a user in the home directory, as the leader of a session; with `terminal`, its input becomes
/// the controlling terminal.
pub(crate) fn run_as_user_at_home(command: &mut Command, account: &Account, terminal: bool) -> io::Result<()> {
    let note = format!("Could not change to the home directory {}; starting in /.\n", account.home.display());
    prepare_command(command, account, terminal, &account.home, Some(note))
}

/// Like [`run_as_user_at_home`], in another directory.
pub(crate) fn run_as_user_in(
    command: &mut Command,
    account: &Account,
    terminal: bool,
    directory: &Path,
) -> io::Result<()> {
    let note = format!("Could not change to the working directory {}; starting in /.\n", directory.display());
    prepare_command(command, account, terminal, directory, Some(note))
}

/// Makes a command run as a user, as the leader of a session, in a directory that the user must be able to enter.
pub(crate) fn run_as_user_in_required(command: &mut Command, account: &Account, directory: &Path) -> io::Result<()> {
    prepare_command(command, account, false, directory, None)
}

/// With a note, the command starts even if the directory cannot be entered.
fn prepare_command(
    command: &mut Command,
    account: &Account,
    terminal: bool,
    directory: &Path,
    note: Option<String>,
) -> io::Result<()> {
    let own = rustix::process::geteuid();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let groups: Vec<Gid> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    if !own.is_root() && own != uid {
        return Err(io::Error::other(format!("only root can run programs as {}", account.name)));
    }
    let directory = CString::new(directory.as_os_str().as_bytes())?;
    let prepare = move || {
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        raise_oom_score();
        reset_priority();
        if own.is_root() {
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        rustix::process::umask(Mode::WGRP | Mode::WOTH);
        match (rustix::process::chdir(directory.as_c_str()), &note) {
            (Ok(()), _) => Ok(()),
            (Err(e), None) => Err(e.into()),
            (Err(_), Some(note)) => {
                let _ = rustix::io::write(rustix::stdio::stderr(), note.as_bytes());
                Ok(rustix::process::chdir(c"/")?)
            }
        }
    };
    // SAFETY: the closure makes system calls through rustix, which calls the kernel directly and neither allocates nor
    // locks; all that it reads was allocated before the fork.
    unsafe { command.pre_exec(prepare) };
    Ok(())
}

/// Resets the priority: the guest may have a higher one than the programs that it starts.
pub(crate) fn reset_priority() {
    let _ = rustix::process::setpriority_process(None, 0);
}

/// When memory runs out, the guest should be killed last. It may not lower its own score, but it can raise the score of
/// the programs that it starts.
fn raise_oom_score() {
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(file, b"200");
    }
}
