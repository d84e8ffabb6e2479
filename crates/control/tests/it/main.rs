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
#[path = "jobs/attempts.rs"]
mod jobs_drive;
#[path = "jobs/after_end.rs"]
mod jobs_ends;
#[path = "jobs/logs.rs"]
mod jobs_logs;
#[path = "jobs/operations.rs"]
mod jobs_operations;
#[path = "jobs/outputs.rs"]
mod jobs_outputs;
#[path = "jobs/support.rs"]
mod jobs_support;
#[path = "jobs/uploads.rs"]
mod jobs_uploads;
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
