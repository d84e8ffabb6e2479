//! The guest, as the engine, a client and a peer see it.
//!
//! Most tests run the link service inside the test, in its own root directory, and talk to it over a link stream. Those
//! in `init` and `ssh_server` run the program.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod agent;
mod configuration;
mod fixture;
mod forwarded_connections;
mod images;
mod init;
mod jobs;
mod malformed_streams;
mod sessions;
mod sftp;
mod ssh_server;
mod sudo;
mod terminal;
mod volume_links;
