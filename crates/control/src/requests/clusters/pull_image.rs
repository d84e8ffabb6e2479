//! The step that pulls the image of a cluster and reports its progress.

use std::time::Duration;

use tarn_model::events::{ClusterEvent, Event};
use tarn_model::ids::ClusterId;
use tarn_store::{clusters, requests};

use super::nodes;
use crate::in_memory::step_progress::ProgressReporter;
use crate::requests::{Context, Next, StepResult, commit, commit_nothing};

/// The name of the step.
pub(crate) const NAME: &str = "pull";

/// How often the progress is stored at most, for callers of other replicas.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Pulls the image and stores its exact reference. A tag may change later, and all boots of all nodes must use the same
/// image.
pub(super) async fn pull_image(ctx: Context<'_>, cluster: &ClusterId) -> StepResult {
    let nodes = nodes::read_nodes(ctx.control, cluster).await?;
    let Some(wanted) = nodes.cluster.wanted_image() else { return commit_nothing() };
    let reporter = ctx.control.memory.step_progress.start_reporting(&ctx.request.id);
    reporter.report_progress(&format!("requesting {wanted}"));
    let report = |message: String| reporter.report_progress(&message);
    let image = tokio::select! {
        image = ctx.control.driver().ensure_image(wanted, nodes.cluster.owner.scope(), &report) => image?,
        () = save_progress(ctx, &reporter) => unreachable!("progress is stored until the image is pulled"),
    };
    let (cluster, limit) = (cluster.clone(), ctx.control.settings().work_deadline);
    commit(move |tx| {
        let nodes = nodes::load_nodes(tx, &cluster)?;
        let scope = nodes.cluster.owner.clone();
        clusters::save(tx, &tarn_model::clusters::Cluster { image: Some(image.clone()), ..nodes.cluster })?;
        let ready = ClusterEvent::ImageReady { image: image.clone() };
        tx.record(scope.scope(), Event::Cluster(cluster.clone(), ready))?;
        Ok(Next::DoneUntil(tx.now().after(limit)))
    })
}

/// Stores the reported progress, rate-limited. An error only means that other replicas see older progress; the runner
/// renews the lease.
async fn save_progress(ctx: Context<'_>, reporter: &ProgressReporter<'_>) {
    let mut messages = reporter.watch_messages();
    loop {
        let (request, message) = (ctx.request.clone(), messages.borrow_and_update().clone());
        let written = ctx.control.store().write(move |tx| requests::set_progress(tx, &request, &message)).await;
        if let Err(error) = written {
            tracing::debug!(request = %ctx.request.id, %error, "the progress of a pull was not stored");
        }
        tokio::time::sleep(WRITE_EVERY).await;
        if messages.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
