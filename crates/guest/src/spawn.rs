//! What happens in a new process between fork and exec: a session of its own, its terminal, and the user's ids.
//!
//! This is the only unsafe code of the guest. The closure makes system calls and touches memory that was prepared before the
//! fork; it neither allocates nor takes a lock.
#![allow(unsafe_code, reason = "std marks everything between fork and exec as unsafe")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::accounts::Account;

/// Makes a command run as a user, in his home, leading a session; with `terminal`, its input is the controlling terminal.
pub(crate) fn run_as(command: &mut Command, account: &Account, terminal: bool) -> io::Result<()> {
    let note = format!("Could not change to the home directory {}; starting in /.\n", account.home.display());
    prepare(command, account, terminal, &account.home, Some(note))
}

/// The same, in another directory.
pub(crate) fn run_as_in(command: &mut Command, account: &Account, terminal: bool, directory: &Path) -> io::Result<()> {
    let note = format!("Could not change to the working directory {}; starting in /.\n", directory.display());
    prepare(command, account, terminal, directory, Some(note))
}

/// Makes a command run as a user, leading a session, in a directory that he must be able to enter.
pub(crate) fn run_in(command: &mut Command, account: &Account, directory: &Path) -> io::Result<()> {
    prepare(command, account, false, directory, None)
}

/// With a note, a directory that cannot be entered is no reason not to begin.
fn prepare(
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
        die_first();
        step_back();
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

/// The guest may come before everybody else in its instance; what it starts for others does not.
pub(crate) fn step_back() {
    let _ = rustix::process::setpriority_process(None, 0);
}

/// When memory runs out, the guest should be the last to die. It may not protect itself, but whatever it starts may step
/// forward.
fn die_first() {
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(file, b"200");
    }
}
