//! Keeps object storage in order: stores request counts, empties disabled accounts, aborts abandoned uploads, and
//! removes files that no row refers to.

use std::time::Duration;

use crate::{Control, Result};

/// How often request counts are stored; a crash loses at most the counts of this time.
const COUNTS: Duration = Duration::from_secs(10);

/// How often disabled accounts are searched for without a notification.
const CLOSED: Duration = Duration::from_secs(10);

/// How often abandoned uploads are searched for.
const ABANDONED: Duration = Duration::from_secs(3600);

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

/// Removes the files that a crash left behind.
pub async fn sweep_object_files(control: &Control) -> Result<Duration> {
    let swept = control.objects().sweep().await?;
    if swept.removed > 0 {
        tracing::info!(removed = swept.removed, "files of object storage that nothing refers to were removed");
    }
    Ok(control.objects().sweep_every())
}
