//! The domain of Tarn, pure: ids, states and their transitions, who may do what, placement, prices, the ledger.
//!
//! This crate must not know any IO, async code, database or HTTP, and it never asks for the time or for chance: both come
//! in as arguments. Start reading at [`clusters`] for a state machine and at [`capacity`] for placement.

pub mod buckets;
pub mod capacity;
pub mod catalogue;
pub mod clusters;
pub mod ends;
pub mod environment;
pub mod gpus;
pub mod ids;
pub mod images;
pub mod job_configs;
pub mod jobs;
pub mod ledger;
pub mod lifecycle;
pub mod limits;
pub mod money;
pub mod names;
pub mod objects;
pub mod preferences;
pub mod refused;
pub mod requests;
pub mod ssh_keys;
pub mod storage;
pub mod time;
pub mod users;

#[cfg(test)]
mod rendering;

pub use environment::{Clock, Ids};
pub use money::Money;
pub use refused::Refused;
pub use time::Time;
