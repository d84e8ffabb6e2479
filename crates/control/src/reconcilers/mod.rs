//! Reconcilers keep the database and the host in agreement. They take no input, observe, and act; each returns when it
//! should run again.
//!
//! Start reading at [`instances`].

pub mod access;
pub mod access_records;
pub mod clock;
pub mod expiry;
pub mod gpus;
pub mod instances;
pub mod jobs;
pub mod objects;
pub mod reboots;
pub mod revocations;

mod volumes;
