//! Reconcilers: what must stay true. They take no input, read what is, and act; each says when it wants to run again.

pub mod access;
pub mod expiry;
pub mod gpus;
pub mod instances;
pub mod jobs;
pub mod objects;
pub mod reboots;

mod volumes;
