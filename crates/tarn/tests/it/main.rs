//! The program as a whole: the dependencies between its crates, `kill -9` at random moments, and the local driver on real
//! instances, with this binary as its helper.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod arrows;
mod dependencies;
mod kill;
mod local;
mod version;
