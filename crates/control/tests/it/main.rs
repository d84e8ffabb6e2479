//! The control plane on the fake driver, with time and chance in the hands of the tests.

mod capacity;
mod idempotency;
mod matrix;
mod races;
mod support;
