//! The domain of Tarn, pure: ids, states and their transitions, access rules, placement, prices, the ledger.
//!
//! This crate must not know any IO, async code, database or HTTP, and it never reads a clock or random bits: both are
//! passed in as arguments. The folders only group the modules; every module is public at the root. Start reading at
//! [`lifecycle`] for a state machine and at [`capacity`] for placement.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod events;

mod accounts;
mod basics;
mod compute;
mod data;
mod work;

#[cfg(test)]
mod rendering;
#[cfg(feature = "testing")]
pub mod testing;

pub use accounts::{access, ledger, limits, preferences, ssh_keys, ssh_proofs, users};
pub use basics::environment::{Clock, Ids, Timekeeper};
pub use basics::money::Money;
pub use basics::refused::Refused;
pub use basics::time::Time;
pub use basics::{clock_jumps, environment, ids, money, names, refused, time};
pub use compute::{capacity, catalogue, clusters, gpus, host_binding, images, instance_end, lifecycle, line};
pub use data::{buckets, cors, object_rules, objects, s3_keys, storage};
pub use work::{job_configs, jobs, requests};
