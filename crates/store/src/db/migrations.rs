//! The migrations, in order. They only add; what is to be removed waits a release.

/// Each is run once, in a transaction of its own.
pub(crate) const ALL: [&str; 8] = [
    include_str!("../../../../migrations/0001_spine.sql"),
    include_str!("../../../../migrations/0002_machines.sql"),
    include_str!("../../../../migrations/0003_volumes.sql"),
    include_str!("../../../../migrations/0004_objects.sql"),
    include_str!("../../../../migrations/0005_jobs.sql"),
    include_str!("../../../../migrations/0006_images.sql"),
    include_str!("../../../../migrations/0007_gpus.sql"),
    include_str!("../../../../migrations/0008_limits.sql"),
];

/// How many there are: the version that this program knows.
pub(crate) const KNOWN: i64 = ALL.len() as i64;

/// Where it is written down which have been run.
pub(super) const TABLE: &str = "create table if not exists migrations (version bigint primary key)";

/// What an engine says when the database is newer than the program.
pub(super) fn too_new(found: i64) -> crate::Error {
    let known = ALL.len();
    crate::Error::Unavailable(format!(
        "the database is at version {found}, this program knows {known}: run a newer program"
    ))
}
