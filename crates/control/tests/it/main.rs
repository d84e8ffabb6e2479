//! The control plane on the fake driver, with time and chance in the hands of the tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod capacity;
mod idempotency;
mod matrix;
mod races;
mod support;
