//! The checks, one file for each area that needs more than the driver's own examination.
//!
//! A check only reads. It returns findings, and never fails itself.

pub(super) mod backups;
pub(super) mod certificate;
pub(super) mod configuration;
pub(super) mod database;
pub(super) mod drift;
pub(super) mod engine;
pub(super) mod keys;
pub(super) mod ports;
pub(super) mod private_networks;
pub(super) mod registries;
