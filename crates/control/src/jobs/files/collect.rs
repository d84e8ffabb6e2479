//! Saving everything of a job when no process of it runs any more: its outputs and its log. Then its archive is
//! removed.

use std::time::Duration;

use tarn_link::OutputsOrder;
use tokio::time::Instant;

use super::fetch_outputs::{self, Fetched, KeptOutputs};
use super::job_files;
use crate::jobs::attempt::guest_calls::{self, NodeStatus};
use crate::jobs::backoff::Backoff;
use crate::jobs::logs::compact;
use crate::jobs::queue::leased_job::{LeasedJob, retry_while_unavailable};
use crate::{Kind, Result};

/// How often storing the outputs is tried, before the job ends without them.
const MAX_TRIES: u32 = 10;

/// How long the stream of a reachable node may break repeatedly.
const BROKEN_TIMEOUT: Duration = Duration::from_secs(600);

/// How many outputs are listed at a time.
const PAGE: u32 = 1_000;

/// Whether outputs of an earlier try may be stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::jobs) enum CollectStart {
    /// Nothing is stored yet.
    First,
    /// Another task has begun, and may have stored some.
    Resumed,
}

/// The result of collecting.
#[derive(Debug, Default)]
pub(in crate::jobs) struct Collected {
    /// A note for the owner about what is missing.
    pub(in crate::jobs) note: Option<String>,
    /// Whether outputs that could not be stored still exist on the node, and only there.
    pub(in crate::jobs) is_only_on_node: bool,
}

impl Collected {
    fn incomplete(why: &str, is_only_on_node: bool) -> Self {
        Collected { note: Some(format!("not all of its outputs could be kept: {why}")), is_only_on_node }
    }
}

/// Saves the outputs and the log, and removes the archive.
pub(in crate::jobs) async fn collect_files(leased: &LeasedJob, start: CollectStart) -> Result<Collected> {
    retry_while_unavailable("the bucket of its files", || job_files::ensure_bucket(&leased.control)).await?;
    let collected = if leased.job.config.outputs.is_empty() || leased.nodes.is_empty() {
        Collected::default()
    } else {
        collect_outputs(leased, start).await
    };
    if !compact::is_small_log(leased.job.log_bytes) {
        compact::merge_all_rows(leased).await?;
    }
    if leased.job.has_files() {
        retry_while_unavailable("its files", || job_files::remove_files(&leased.control, &leased.job.id)).await?;
    }
    Ok(collected)
}

/// Saves the outputs, or returns why that is impossible: the job ends in any case.
async fn collect_outputs(leased: &LeasedJob, start: CollectStart) -> Collected {
    let (control, id) = (&leased.control, &leased.job.id);
    let (instance, name) = leased.instance_and_name(0);
    let (mut tries, mut backoff, mut may_be_stale) = (0, Backoff::default(), start == CollectStart::Resumed);
    let mut give_up_at = None;
    loop {
        let order = OutputsOrder {
            job: id.to_string(),
            patterns: leased.job.config.outputs.clone(),
            only: Vec::new(),
            contents: true,
        };
        let mut fetched = fetch_outputs::fetch_outputs(control, id, instance, order).await;
        if may_be_stale
            && let Fetched::All(kept) = &fetched
            && let Err(error) = remove_stale_outputs(leased, kept).await
        {
            fetched = Fetched::Failed(error);
        }
        match fetched {
            Fetched::All(kept) => return Collected { note: kept.note(), is_only_on_node: false },
            Fetched::Fault(why) => return Collected::incomplete(&why, true),
            Fetched::Failed(error) => {
                tracing::warn!(job = %id, cause = ?error.cause, "outputs cannot be stored: {error}");
                // The database becomes available again by itself; all other failures need an action of the operator.
                if error.kind != Kind::Unavailable || error.code == job_files::STORAGE_FULL {
                    tries += 1;
                }
                if tries >= MAX_TRIES {
                    let is_full = error.code == job_files::STORAGE_FULL;
                    let why = if is_full { "the engine's disk is full" } else { "the engine could not store them" };
                    return Collected::incomplete(why, true);
                }
                give_up_at = None;
            }
            Fetched::Broken(why) => match guest_calls::read_node_status(control, instance, &name).await {
                NodeStatus::Gone(why) => return Collected::incomplete(&why, false),
                NodeStatus::Up(_) => {
                    let now = Instant::now();
                    if now >= *give_up_at.get_or_insert(now + BROKEN_TIMEOUT) {
                        return Collected::incomplete(&why, true);
                    }
                }
                // The node comes back, so there is no timeout.
                NodeStatus::Away => give_up_at = None,
            },
        }
        may_be_stale = true;
        backoff.sleep().await;
    }
}

/// Removes outputs that an earlier try stored and that do not exist any more.
async fn remove_stale_outputs(leased: &LeasedJob, kept: &KeptOutputs) -> Result<()> {
    let (control, id) = (&leased.control, &leased.job.id);
    let mut after: Option<String> = None;
    loop {
        let page =
            retry_while_unavailable("its outputs", || job_files::list_outputs(control, id, after.as_deref(), PAGE))
                .await?;
        let Some((last, _)) = page.last().cloned() else { return Ok(()) };
        for (path, _) in page.iter().filter(|(path, _)| !kept.paths.contains(path)) {
            retry_while_unavailable("its outputs", || job_files::remove_output(control, id, path)).await?;
        }
        after = Some(last);
    }
}
