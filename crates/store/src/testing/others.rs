//! Rows of other tenants, as many as a test wants: what waits, what has ended, and what is only kept. Their ids come before
//! all others, so that a query which steps over them finds them first. Their times lie in the future, so that none is due
//! or expires, and no claim stands before one of the test. The claims wait for all eight GPUs of the host.

use crate::db::params;
use crate::{Error, Store};

/// Begins a statement that inserts a row for each number `i`, with an `id` made of it, one of ten scopes and its user.
macro_rules! each {
    ($table:literal, $columns:literal, $values:literal) => {
        concat!(
            "insert into ",
            $table,
            " (",
            $columns,
            ") with recursive numbers(i) as (select cast(1 as bigint) union all select i + 1 from numbers \
             where i < cast($1 as bigint)), rows_of(i, id, scope, user_id, t) as (\
             select i, substr(cast(100000000000 + i as text), 2), 'o-0' || substr(cast(100000000000 + i % 10 as text), 2), \
             'u-0' || substr(cast(100000000000 + i % 10 as text), 2), 7258118400000000 + i from numbers) select ",
            $values,
            " from rows_of"
        )
    };
}

/// A statement for each kind of row.
const KINDS: [&str; 26] = [
    each!(
        "users",
        "id, email, org_id, org_admin, engine_admin, disabled, created_us",
        "'u-1' || id, id || '@example.com', scope, 0, 0, 0, t"
    ),
    each!(
        "ssh_keys",
        "id, user_id, org_id, scope, name, public_key, fingerprint, created_us",
        "'k-1' || id, 'u-1' || id, scope, scope, id, 'ssh-ed25519 ' || id, 'SHA256:' || id, t"
    ),
    each!("ssh_key_proofs", "fingerprint, scope, proven_us", "'SHA256:' || id, scope, t"),
    // Clusters that wait for capacity, with their claims and jobs.
    each!(
        "clusters",
        "id, scope, name, user_id, org_id, instance_type, num_nodes, hourly_rate_micros, deletion_protection, jobs_parallel, \
         state, since_us, created_us, version",
        "'c-0' || id, scope, 'waiting-' || id, user_id, scope, '8xH100', 1, 0, 0, 1, 'PENDING', t, t, 0"
    ),
    each!(
        "instances",
        "id, cluster_id, node, state, cpu_milli, memory_bytes, gpu_count, gpu_model, gpus, holds_capacity, boot",
        "'i-0' || id, 'c-0' || id, 0, 'PENDING', 1000, 1, 8, 'H100', '', 0, 1"
    ),
    each!(
        "requests",
        "id, type, status, user_id, org_id, scope, cluster_id, waiting, step, attempts, due_us, deadline_us, lease_until_us, \
         epoch, created_us, line_key, examined_us, turn_us",
        "'r-0' || id, 'CLUSTER_CLAIM', 'PENDING', user_id, scope, scope, 'c-0' || id, 1, 0, 0, t, t, 0, 0, t, \
         scope || ' 1x1000/1/8/H100', t, t"
    ),
    each!("cluster_keys", "cluster_id, public_keys", "'c-0' || id, 'ssh-ed25519 ' || id"),
    each!("cluster_fingerprints", "fingerprint, cluster_id", "'SHA256:' || id, 'c-0' || id"),
    each!(
        "jobs",
        "id, scope, user_id, org_id, cluster_id, instance_type, name, config, teardown, state, since_us, attempt, log_bytes, \
         removing, created_us, queued_us, lease_until_us, epoch, version",
        "'j-0' || id, scope, user_id, scope, 'c-0' || id, '8xH100', id, '{}', i % 2, 'PENDING', t, 1, 0, 0, t, t, 0, 0, 0"
    ),
    each!(
        "jobs",
        "id, scope, user_id, org_id, cluster_id, instance_type, name, config, teardown, state, since_us, attempt, log_bytes, \
         removing, created_us, lease_until_us, epoch, version",
        "'j-1' || id, scope, user_id, scope, 'c-0' || id, '8xH100', id, '{}', 0, 'DRAFT', t, 1, 0, 0, t, 0, 0, 0"
    ),
    // Clusters that have ended, and those that failed and hold nothing.
    each!(
        "clusters",
        "id, scope, name, user_id, org_id, instance_type, num_nodes, hourly_rate_micros, deletion_protection, jobs_parallel, \
         state, since_us, created_us, version",
        "'c-1' || id, scope, 'destroyed-' || id, user_id, scope, '8xH100', 1, 0, 0, 1, 'DESTROYED', t, t, 0"
    ),
    each!(
        "clusters",
        "id, scope, name, user_id, org_id, instance_type, num_nodes, hourly_rate_micros, deletion_protection, jobs_parallel, \
         state, reason, since_us, created_us, version",
        "'c-2' || id, scope, 'failed-' || id, user_id, scope, '8xH100', 1, 0, 0, 1, 'FAILED', 'why', t, t, 0"
    ),
    each!(
        "instances",
        "id, cluster_id, node, state, cpu_milli, memory_bytes, gpu_count, gpus, holds_capacity, boot",
        "'i-1' || id, 'c-1' || id, 0, 'DESTROYED', 1000, 1, 8, '', 0, 1"
    ),
    each!(
        "instances",
        "id, cluster_id, node, state, reason, cpu_milli, memory_bytes, gpu_count, gpus, holds_capacity, boot",
        "'i-2' || id, 'c-2' || id, 0, 'FAILED', 'why', 1000, 1, 8, '', 0, 1"
    ),
    each!(
        "requests",
        "id, type, status, user_id, org_id, scope, cluster_id, waiting, step, attempts, due_us, deadline_us, lease_until_us, \
         epoch, created_us, ended_us",
        "'r-1' || id, 'CLUSTER_RELEASE', 'COMPLETED', user_id, scope, scope, 'c-1' || id, 0, 3, 0, t, t, 0, 1, t, t"
    ),
    each!(
        "jobs",
        "id, scope, user_id, org_id, cluster_id, instance_type, name, config, teardown, state, since_us, attempt, log_bytes, \
         removing, created_us, queued_us, ended_us, lease_until_us, epoch, version",
        "'j-2' || id, scope, user_id, scope, 'c-1' || id, '8xH100', id, '{}', 0, 'ENDED', t, 1, 0, 0, t, t, t, 0, 1, 0"
    ),
    each!("job_nodes", "job_id, node, instance_id, boot, log_offset, ended", "'j-2' || id, 0, 'i-1' || id, 1, 0, 1"),
    // Volumes of which nothing is left.
    each!(
        "volumes",
        "id, scope, name, user_id, org_id, size_gb, first_size_gb, remains, deletion_protection, state, since_us, created_us, \
         version",
        "'s-1' || id, scope, 'destroyed-' || id, user_id, scope, 10, 10, 0, 0, 'DESTROYED', t, t, 0"
    ),
    each!(
        "volumes",
        "id, scope, name, user_id, org_id, size_gb, first_size_gb, remains, deletion_protection, state, reason, since_us, \
         created_us, version",
        "'s-2' || id, scope, 'failed-' || id, user_id, scope, 10, 10, 0, 0, 'FAILED', 'why', t, t, 0"
    ),
    // What happened; the numbers are before those of the test.
    each!(
        "events",
        "number, at_us, actor, scope, object, verb, detail",
        "-i, t, user_id, scope, 'c-1' || id, 'cluster.destroy', '{}'"
    ),
    each!("ledger_entries", "transaction_id, line, account, amount_micros", "'t-' || id, 0, 'balance:' || scope, 1"),
    // Object storage.
    each!("s3_keys", "access_key, user_id, org_id, name, created_us", "'0TARN' || id, 'u-1' || id, scope, 'key', t"),
    each!(
        "accounts",
        "org_id, access_key, closing, bytes, objects, requests, created_us",
        "'o-1' || id, 'o-1' || id, 0, 0, 0, 0, t"
    ),
    each!("buckets", "id, org_id, name, versioning, created_us", "'b-1' || id, scope, id, 'OFF', t"),
    each!(
        "objects",
        "bucket_id, key, sequence, modified_us, size, etag, content_id, details",
        "'b-1' || id, 'key', 1, t, 1, 'etag', 'd-1' || id, '{}'"
    ),
    each!("lifecycle_passes", "bucket_id, org_id, due_us, position", "'b-1' || id, scope, t, ''"),
];

/// Adds `count` rows of each kind, which belong to other tenants. Each kind has a transaction of its own, because one of a
/// server has a limit.
pub async fn add_others(store: &Store, count: u32) -> Result<(), Error> {
    for sql in KINDS {
        store.write(move |tx| tx.run(sql, &params![count])).await?;
    }
    Ok(())
}
