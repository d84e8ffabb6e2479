//! What happens in a new process between fork and exec: a session of its own, its terminal, and the user's ids.
//!
//! This is the only unsafe code of the guest. The closure makes system calls and touches memory that was prepared before the
//! fork; it neither allocates nor takes a lock.
#![allow(unsafe_code, reason = "std marks everything between fork and exec as unsafe")]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};

use crate::accounts::Account;

/// Makes a command run as a user, in his home, leading a session; with `terminal`, its input is the controlling terminal.
pub(crate) fn run_as(command: &mut Command, account: &Account, terminal: bool) -> io::Result<()> {
    let own = rustix::process::geteuid();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let groups: Vec<Gid> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    if !own.is_root() && own != uid {
        return Err(io::Error::other(format!("only root can run programs as {}", account.name)));
    }
    let home = CString::new(account.home.as_os_str().as_bytes())?;
    let note = format!("Could not change to the home directory {}; starting in /.\n", account.home.display());
    let prepare = move || {
        rustix::process::setsid()?;
        if terminal {
            rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        die_first();
        if own.is_root() {
            rustix::thread::set_thread_groups(&groups)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        rustix::process::umask(Mode::WGRP | Mode::WOTH);
        if rustix::process::chdir(home.as_c_str()).is_err() {
            let _ = rustix::io::write(rustix::stdio::stderr(), note.as_bytes());
            rustix::process::chdir(c"/")?;
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls through rustix, which calls the kernel directly and neither allocates nor
    // locks; all that it reads was allocated before the fork.
    unsafe { command.pre_exec(prepare) };
    Ok(())
}

/// When memory runs out, the guest should be the last to die. It may not protect itself, but whatever it starts may step
/// forward.
fn die_first() {
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(file, b"200");
    }
}
