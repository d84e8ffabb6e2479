//! The guest: the first process of every instance, which lets people, peers and the engine in.
//!
//! It must work alone: everything that it needs is in this program and on the disk of the instance, and the engine may be
//! away for as long as it likes. It knows the protocol (`link`) and the SSH front (`ssh`), and nothing of clusters, prices
//! or databases. Whatever comes in over a stream is bounded, and what is done for a user is done with his rights.
//!
//! Start reading at [`Guest::serve`] in `service`: one stream with one purpose. `session` runs programs, `configuration`
//! keeps keys and names, `images` is what differs in instances of container images, `jobs` runs commands with nobody connected, `door` is the SSH server of the instance, `sftp` and
//! `sudo` are programs of their own that the same binary can be, and `init` is what only the first process does. `main.rs`
//! puts them together.

mod accounts;
mod bounded;
mod chance;
mod children;
mod configuration;
mod images;
pub mod inherited;
pub mod init;
pub mod jobs;
mod pipe;
mod service;
mod session;
mod settings;
pub mod sftp;
pub mod sockets;
mod spawn;
pub mod ssh_server;
pub mod sudo;

pub use accounts::{Account, Accounts, of_sessions};
pub use children::Children;
pub use service::Guest;
pub use settings::Settings;
