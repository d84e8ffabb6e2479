//! Making everything of a job safe when nothing of it runs any more: its outputs, its log, and then its archive goes.

use std::time::Duration;

use tarn_link::OutputsOrder;
use tokio::time::Instant;

use super::fetch::{self, Fetched, Kept};
use super::guests::{self, Sight};
use super::hand::{Hand, patiently};
use super::pauses::Pauses;
use super::{compact, shelf};
use crate::{Kind, Result};

/// How often what cannot be put is tried, before the job ends without it.
const TRIES: u32 = 10;

/// How long a node that should answer may go on to break off.
const PATIENCE: Duration = Duration::from_secs(600);

/// How many outputs are listed at a time.
const PAGE: u32 = 1_000;

/// When the collecting began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// Now: nothing is there yet.
    Now,
    /// Another driver had begun, and may have left some.
    Before,
}

/// What became of it.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// What the owner should know of what is missing.
    pub(super) note: Option<String>,
    /// Whether outputs that could not be kept are on the node, and nowhere else.
    pub(super) is_only_there: bool,
}

impl Collected {
    fn without(why: &str, is_only_there: bool) -> Self {
        Collected { note: Some(format!("not all of its outputs could be kept: {why}")), is_only_there }
    }
}

/// Collects everything.
pub(super) async fn collect(hand: &Hand, begun: Begun) -> Result<Collected> {
    patiently("the place of its files", || shelf::ready(&hand.control)).await?;
    let collected = match hand.job.config.outputs.is_empty() || hand.nodes.is_empty() {
        true => Collected::default(),
        false => outputs(hand, begun).await,
    };
    if !compact::is_small(hand.job.log_bytes) {
        compact::merge_all(hand).await?;
    }
    if hand.job.has_files() {
        patiently("its files", || shelf::remove_files(&hand.control, &hand.job.id)).await?;
    }
    Ok(collected)
}

/// Keeps the outputs, or says why that cannot be: it is no reason not to end.
async fn outputs(hand: &Hand, begun: Begun) -> Collected {
    let (control, id) = (&hand.control, &hand.job.id);
    let (instance, name) = hand.node(0);
    let (mut tries, mut pauses, mut may_be_old) = (0, Pauses::default(), begun == Begun::Before);
    let mut until = None;
    loop {
        let order = OutputsOrder {
            job: id.to_string(),
            patterns: hand.job.config.outputs.clone(),
            only: Vec::new(),
            contents: true,
        };
        let mut fetched = fetch::fetch(control, id, instance, order).await;
        if may_be_old
            && let Fetched::All(kept) = &fetched
            && let Err(error) = remove_others(hand, kept).await
        {
            fetched = Fetched::Failed(error);
        }
        match fetched {
            Fetched::All(kept) => return Collected { note: kept.note(), is_only_there: false },
            Fetched::Fault(why) => return Collected::without(&why, true),
            Fetched::Failed(error) => {
                tracing::warn!(job = %id, cause = ?error.cause, "outputs cannot be kept: {error}");
                // The database comes back, however long that takes; for all else somebody has to do something.
                if error.kind != Kind::Unavailable || error.code == shelf::FULL {
                    tries += 1;
                }
                if tries >= TRIES {
                    let is_full = error.code == shelf::FULL;
                    let why =
                        if is_full { "the engine had no room for them" } else { "the engine could not keep them" };
                    return Collected::without(why, true);
                }
                until = None;
            }
            Fetched::Broken(why) => match guests::look(control, instance, &name).await {
                Sight::Gone(why) => return Collected::without(&why, false),
                Sight::There(_) => {
                    let now = Instant::now();
                    if now >= *until.get_or_insert(now + PATIENCE) {
                        return Collected::without(&why, true);
                    }
                }
                // It comes back, however long that takes.
                Sight::Away => until = None,
            },
        }
        may_be_old = true;
        pauses.pause().await;
    }
}

/// Removes what an earlier try had found and what is not there any more.
async fn remove_others(hand: &Hand, kept: &Kept) -> Result<()> {
    let (control, id) = (&hand.control, &hand.job.id);
    let mut after: Option<String> = None;
    loop {
        let page = patiently("its outputs", || shelf::list_outputs(control, id, after.as_deref(), PAGE)).await?;
        let Some((last, _)) = page.last().cloned() else { return Ok(()) };
        for (path, _) in page.iter().filter(|(path, _)| !kept.paths.contains(path)) {
            patiently("its outputs", || shelf::remove_output(control, id, path)).await?;
        }
        after = Some(last);
    }
}
