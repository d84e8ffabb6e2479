//! Jobs: rows, the queue of each cluster, leases, logs and nodes.
//!
//! The engine that runs a job holds its lease ([`Leased`]): every write names the epoch of that lease, so that an
//! engine that lost it can write nothing. Start reading at [`insert`] for the rows and at [`lease_available`] for the
//! leases.

/// Every query for jobs reads the same columns, in the order of [`rows::read_job`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, user_id, org_id, cluster_id, instance_type, name, config, teardown, archive_bytes, state, outcome, ",
            "since_us, attempt, note, log_bytes, created_us, queued_us, started_us, ended_us, version, epoch from jobs ",
            $rest
        )
    };
}

pub mod logs;
pub mod nodes;
pub mod status;

mod admission;
mod leases;
mod removal;
mod rows;

pub use admission::{admissible, count_interrupted, is_any_due, line};
pub use leases::{Leased, is_lost, lease_available, leased, release, release_all, renew, set_log_bytes};
pub use removal::{expired, expired_drafts, remove, removing, set_removing, tearing_down, tears_down, unknown};
pub use rows::{
    count_open_of_cluster, get, insert, is_any_open, list, open, open_of_cluster, progress, refresh_draft, save,
};
