//! The guest as the engine, a client and a peer meet it.
//!
//! Most tests run the service inside the test, in a root directory of their own, and talk to it over a link stream. Those in
//! `init` and `ssh` run the program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;
mod configure;
mod forwards;
mod hostile;
mod images;
mod init;
mod jobs;
mod lab;
mod links;
mod sessions;
mod sftp;
mod ssh;
mod sudo;
mod terminal;
