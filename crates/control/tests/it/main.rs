//! The control plane on the fake driver; the tests own time and randomness.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod capacity;
mod cost;
mod host_binding;
mod instances;
mod jobs;
mod requests;
mod storage;
