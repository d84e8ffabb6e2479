//! What must stay true of jobs: what is over leaves nothing behind, neither on nodes nor on the shelf.

use std::time::Duration;

use crate::jobs::{removal, sweep};
use crate::{Control, Result};

/// How often jobs are tidied up, if nothing rings, and how soon while something is left.
const TIDY: Duration = Duration::from_secs(60);
const TIDY_SOON: Duration = Duration::from_secs(5);

/// Changes that come in a burst are looked at once.
const BREATH: Duration = Duration::from_millis(200);

/// How often the nodes are looked at, and how soon while something is being stopped there.
const NODES: Duration = Duration::from_secs(60);
const NODES_SOON: Duration = Duration::from_secs(5);

/// How often the shelf is looked at.
const SHELF: Duration = Duration::from_secs(3600);

/// Done when a job may have left something.
pub async fn changed(control: &Control) {
    control.jobs_left().notified().await;
    tokio::time::sleep(BREATH).await;
}

/// Hides what is too old, and removes what is hidden.
pub async fn tidy(control: &Control) -> Result<Duration> {
    removal::expire(control).await?;
    Ok(if removal::remove(control).await? { TIDY_SOON } else { TIDY })
}

/// Lets nodes forget what nobody needs, and stops what should not run.
pub async fn sweep_nodes(control: &Control) -> Result<Duration> {
    Ok(if sweep::sweep(control).await? { NODES_SOON } else { NODES })
}

/// Removes what belongs to no job.
pub async fn sweep_shelf(control: &Control) -> Result<Duration> {
    removal::sweep_shelf(control).await?;
    Ok(SHELF)
}
