//! The control plane on the fake driver; the tests own time and randomness.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod access;
mod capacity;
mod instances;
mod jobs_drive;
mod jobs_ends;
mod jobs_logs;
mod jobs_operations;
mod jobs_outputs;
mod jobs_support;
mod jobs_uploads;
mod requests;
mod storage;
mod support;
