//! What must stay true of jobs: a removed job leaves nothing behind, neither on nodes nor in object storage.

use std::time::Duration;

use crate::jobs::node_sweep;
use crate::jobs::queue::removal;
use crate::{Control, Result};

/// How often jobs are removed without a notification, and how often while some could not be removed.
const TIDY_INTERVAL: Duration = Duration::from_secs(60);
const TIDY_INTERVAL_BUSY: Duration = Duration::from_secs(5);

/// Delays the reaction to a change, so that a burst of changes is handled once.
const BURST_DELAY: Duration = Duration::from_millis(200);

/// How often the nodes are swept, and how often while attempts are being stopped there.
const NODES_INTERVAL: Duration = Duration::from_secs(60);
const NODES_INTERVAL_BUSY: Duration = Duration::from_secs(5);

/// How often object storage is swept.
const OBJECTS_INTERVAL: Duration = Duration::from_secs(3600);

/// Completes when a job may have left something behind.
pub async fn changed(control: &Control) {
    control.memory.jobs_left.notified().await;
    tokio::time::sleep(BURST_DELAY).await;
}

/// Hides expired jobs, and removes hidden ones.
pub async fn tidy(control: &Control) -> Result<Duration> {
    removal::hide_expired_jobs(control).await?;
    Ok(if removal::remove_hidden_jobs(control).await? { TIDY_INTERVAL_BUSY } else { TIDY_INTERVAL })
}

/// Asks nodes to forget what no job needs, and to stop what should not run.
pub async fn sweep_nodes(control: &Control) -> Result<Duration> {
    Ok(if node_sweep::sweep_running_nodes(control).await? { NODES_INTERVAL_BUSY } else { NODES_INTERVAL })
}

/// Removes objects that belong to no job.
pub async fn sweep_objects(control: &Control) -> Result<Duration> {
    removal::remove_orphaned_objects(control).await?;
    Ok(OBJECTS_INTERVAL)
}
