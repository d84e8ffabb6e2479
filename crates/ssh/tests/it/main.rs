//! The SSH front and the real programs of OpenSSH, with a machine that runs things on this host.

#![allow(clippy::unwrap_used, reason = "tests")]

mod forwards;
mod front;
mod limits;
mod logins;
mod machine;
mod sessions;
mod transfers;
