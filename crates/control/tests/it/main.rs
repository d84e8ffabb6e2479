//! The control plane on the fake driver, with time and chance in the hands of the tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod capacity;
mod deaths;
mod gateway;
mod gpus;
mod gpus_missing;
mod idempotency;
mod images;
mod jobs;
mod limits;
mod loopback_proxy;
mod machines;
mod matrix;
mod pool;
mod races;
mod reboots;
mod restart;
mod support;
mod volumes;
mod watched;
