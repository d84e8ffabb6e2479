//! The migrations, in order. They only add tables and columns. A removal waits for the release after the last use.

/// Each migration runs once, in its own transaction.
pub(crate) const ALL: [&str; 16] = [
    include_str!("../../../../migrations/0001_spine.sql"),
    include_str!("../../../../migrations/0002_machines.sql"),
    include_str!("../../../../migrations/0003_volumes.sql"),
    include_str!("../../../../migrations/0004_objects.sql"),
    include_str!("../../../../migrations/0005_jobs.sql"),
    include_str!("../../../../migrations/0006_images.sql"),
    include_str!("../../../../migrations/0007_gpus.sql"),
    include_str!("../../../../migrations/0008_limits.sql"),
    include_str!("../../../../migrations/0009_audit.sql"),
    include_str!("../../../../migrations/0010_s3_keys.sql"),
    include_str!("../../../../migrations/0011_line.sql"),
    include_str!("../../../../migrations/0012_usage.sql"),
    include_str!("../../../../migrations/0013_access.sql"),
    include_str!("../../../../migrations/0014_ssh_key_proofs.sql"),
    include_str!("../../../../migrations/0015_quotas.sql"),
    include_str!("../../../../migrations/0016_bucket_settings.sql"),
];

/// The schema version that this program supports: the number of migrations.
pub(crate) const SCHEMA_VERSION: i64 = ALL.len() as i64;

/// The table that records the migrations that have run.
pub(super) const TABLE: &str = "create table if not exists migrations (version bigint primary key)";

/// The error for a database that is newer than the program.
pub(super) fn schema_too_new(found: i64) -> crate::Error {
    let known = ALL.len();
    crate::Error::Unavailable(format!(
        "the database is at version {found}, this program knows {known}: run a newer program"
    ))
}
