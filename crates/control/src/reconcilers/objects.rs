//! Keeps object storage in order: stores request counts, empties disabled accounts, aborts abandoned uploads, applies
//! the rules of buckets for the life of their objects, and removes files that no row refers to.

use std::time::Duration;

use crate::{Control, Result};

/// How often request counts are stored; a crash loses at most the counts of this time.
const COUNTS: Duration = Duration::from_secs(10);

/// How often disabled accounts are searched for without a notification.
const CLOSED: Duration = Duration::from_secs(10);

/// How often abandoned uploads are searched for.
const ABANDONED: Duration = Duration::from_secs(3600);

/// How often rules are searched for that are due, and how long other work has when there is more to do.
const RULES: Duration = Duration::from_secs(60);
const MORE_RULES: Duration = Duration::from_secs(1);

/// How often the end of a backup is awaited, which needs the files that have no row any more.
const AFTER_BACKUP: Duration = Duration::from_secs(5);

/// Stores the request counts.
pub async fn store_request_counts(control: &Control) -> Result<Duration> {
    control.objects().save_counts().await?;
    Ok(COUNTS)
}

/// Empties disabled accounts.
pub async fn empty_closed_accounts(control: &Control) -> Result<Duration> {
    control.objects().empty_closed().await?;
    Ok(CLOSED)
}

/// Waits until object storage is disabled for an organization.
pub async fn wait_until_closed(control: &Control) {
    control.memory.objects_closed.notified().await;
}

/// Aborts abandoned uploads.
pub async fn abort_abandoned_uploads(control: &Control) -> Result<Duration> {
    let aborted = control.objects().abort_abandoned().await?;
    if aborted > 0 {
        tracing::info!(aborted, "abandoned uploads were aborted");
    }
    Ok(ABANDONED)
}

/// Applies the rules of buckets for the life of their objects, a limited number of pages at a time.
pub async fn apply_object_rules(control: &Control) -> Result<Duration> {
    let applied = control.objects().apply_object_rules().await?;
    if applied.removed > 0 {
        tracing::info!(removed = applied.removed, "objects were removed by the rules of their buckets");
    }
    Ok(if applied.has_more { MORE_RULES } else { RULES })
}

/// Waits until rules for the life of objects are set. Those that follow within a moment are applied together.
pub async fn wait_until_rules_change(control: &Control) {
    control.objects().wait_until_rules_change().await;
    tokio::time::sleep(MORE_RULES).await;
}

/// Removes the files that a crash left behind.
pub async fn sweep_object_files(control: &Control) -> Result<Duration> {
    let swept = control.objects().sweep().await?;
    if swept.removed > 0 {
        tracing::info!(removed = swept.removed, "files of object storage that nothing refers to were removed");
    }
    Ok(if swept.was_held { AFTER_BACKUP } else { control.objects().sweep_every() })
}

/// Waits until files are left to the sweep because a backup needs them. Those that follow within a moment are removed
/// together.
pub async fn wait_until_files_are_left(control: &Control) {
    control.objects().wait_until_files_are_left().await;
    tokio::time::sleep(AFTER_BACKUP).await;
}
