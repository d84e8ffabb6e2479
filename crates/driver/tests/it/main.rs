//! The drivers: the conformance suite on the fake driver, and the network of the local driver on a real kernel.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod conformance;
mod network;
