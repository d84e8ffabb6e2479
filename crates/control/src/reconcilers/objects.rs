//! What must stay true of object storage: requests are written down, what was given up is emptied, uploads that nobody ends
//! are given up, and no file is left that no row names.

use std::time::Duration;

use crate::{Control, Result};

/// How often the numbers of requests are written down, and at most how many of them a crash forgets.
const COUNTS: Duration = Duration::from_secs(10);

/// How long until accounts that were given up are looked for, if nothing rings.
const CLOSED: Duration = Duration::from_secs(10);

/// How often uploads that nobody ends are looked for.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Writes down how many requests there were.
pub async fn count(control: &Control) -> Result<Duration> {
    control.objects().save_counts().await?;
    Ok(COUNTS)
}

/// Empties what was given up.
pub async fn empty(control: &Control) -> Result<Duration> {
    control.objects().empty_closed().await?;
    Ok(CLOSED)
}

/// Waits until object storage is given up by somebody.
pub async fn closed(control: &Control) {
    control.objects_closed().notified().await;
}

/// Gives up uploads that nobody ends.
pub async fn abandon(control: &Control) -> Result<Duration> {
    let aborted = control.objects().abort_abandoned().await?;
    if aborted > 0 {
        tracing::info!(aborted, "uploads that were begun too long ago were given up");
    }
    Ok(ABANDONED)
}

/// Removes the files that a crash left behind.
pub async fn sweep(control: &Control) -> Result<Duration> {
    let swept = control.objects().sweep().await?;
    if swept.removed > 0 {
        tracing::info!(removed = swept.removed, "files of object storage that nothing refers to were removed");
    }
    Ok(control.objects().sweep_every())
}
