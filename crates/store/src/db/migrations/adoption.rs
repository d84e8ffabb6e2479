//! Databases of programs before 0.2.0, which recorded no hashes: their shape shows which migrations ran.
//!
//! Two migrations were edited after programs had run their first texts. [`EARLIER_TEXTS`] lists these texts and what
//! brings a database that was made with them to the shape of the later text. No other migration was ever edited; the
//! file `migrations/hashes` and a test prevent that another one is.

use std::collections::BTreeSet;

use super::shape::{Shape, added_by_migrations};
use crate::{Error, Result};

/// A text of a migration that was edited after its first use.
struct EarlierText {
    /// Names in the shape of a database that was made with it.
    has: &'static [&'static str],
    /// Names that are missing there.
    lacks: &'static [&'static str],
    /// The statements that bring the database to the shape of the later text.
    repair: &'static str,
    /// Names that these statements add.
    adds: &'static [&'static str],
}

/// The earlier texts. Their hashes are given so that `sha256sum` on a copy of them finds them here.
const EARLIER_TEXTS: [EarlierText; 3] = [
    // 0001_spine.sql, 9c2b78dbe037fa1c…: without `remains` and without the indexes for expiry.
    // Whether a volume has remains was not recorded, so 1 (there may be some) is the safe value.
    EarlierText {
        has: &["volumes.id"],
        lacks: &["volumes.remains"],
        repair: "alter table volumes add column remains bigint not null default 1; \
                 create index clusters_ended on clusters (since_us) where state = 'DESTROYED'; \
                 create index volumes_ended on volumes (since_us) where state = 'DESTROYED'; \
                 create index requests_open_by_scope on requests (scope, created_us, id) where ended_us is null; \
                 create index requests_ended on requests (ended_us) where ended_us is not null",
        adds: &["volumes.remains", "clusters_ended", "volumes_ended", "requests_open_by_scope", "requests_ended"],
    },
    // 0001_spine.sql, 16b14ba452f6a3ce…: with more indexes, and larger ones. The first text had them too.
    EarlierText {
        has: &["clusters_live", "requests_by_user"],
        lacks: &[],
        repair: "drop index clusters_live; drop index volumes_live; drop index requests_by_user; \
                 drop index if exists requests_open_by_user; \
                 drop index requests_by_cluster; drop index requests_by_volume; \
                 create index requests_by_cluster on requests (cluster_id, created_us, id) where cluster_id is not null; \
                 create index requests_by_volume on requests (volume_id, created_us, id) where volume_id is not null",
        adds: &[],
    },
    // 0015_quotas.sql, ff65890299bca32a…: without one index.
    EarlierText {
        has: &["idempotency.scope", "s3_keys.revoked"],
        lacks: &["ssh_key_proofs_of_scope"],
        repair: "create index ssh_key_proofs_of_scope on ssh_key_proofs (scope)",
        adds: &["ssh_key_proofs_of_scope"],
    },
];

/// What is known about a database without hashes.
#[derive(Debug)]
pub(super) struct Adopted {
    /// The migrations that ran. They may be others than the first ones: programs of branches that were merged later
    /// numbered them differently.
    pub(super) done: BTreeSet<i64>,
    /// Statements to run before the migrations that are missing.
    pub(super) repairs: Vec<&'static str>,
}

/// Determines which migrations ran. `rows` is the number of migrations that the database recorded.
pub(super) fn adopt(rows: usize, mut shape: Shape) -> Result<Adopted> {
    let mut repairs = Vec::new();
    for text in EARLIER_TEXTS {
        let has = |name: &&str| shape.contains(*name);
        if text.has.iter().all(has) && !text.lacks.iter().any(has) {
            repairs.push(text.repair);
            shape.extend(text.adds.iter().map(|name| (*name).to_owned()));
        }
    }
    let mut done = BTreeSet::new();
    for (version, added) in (1..).zip(added_by_migrations()?) {
        let missing: Vec<&str> = added.difference(&shape).map(String::as_str).collect();
        if missing.is_empty() {
            done.insert(version);
        } else if missing.len() < added.len() {
            return Err(differs(&format!("migration {version} ran in part, without {}", missing.join(", "))));
        }
    }
    if done.len() == rows {
        Ok(Adopted { done, repairs })
    } else {
        Err(differs(&format!("{rows} migrations are recorded, and the tables show {}", done.len())))
    }
}

/// The refusal of a database that no released program made.
fn differs(why: &str) -> Error {
    Error::Schema(format!(
        "the tables of the database are not those that Tarn made: {why}. Run the program that wrote the data, undo what \
         was changed by hand, or restore a backup (docs/upgrading.md)"
    ))
}
