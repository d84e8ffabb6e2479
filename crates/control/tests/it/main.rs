//! The control plane on the fake driver, with time and chance in the hands of the tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod capacity;
mod deaths;
mod gateway;
mod idempotency;
mod inside;
mod machines;
mod matrix;
mod pool;
mod races;
mod restart;
mod support;
mod volumes;
mod watched;
