//! The SSH server with the real OpenSSH programs, and a target that runs programs on this host.

#![allow(clippy::unwrap_used, reason = "tests")]

mod forwards;
mod limits;
mod logins;
mod server;
mod sessions;
mod target;
mod transfers;
