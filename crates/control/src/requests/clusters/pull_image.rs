//! The step that fetches the image of a cluster, and tells meanwhile how far it is.

use std::time::Duration;

use tarn_store::{clusters, events, requests};

use super::nodes;
use crate::in_memory::step_progress::ProgressReporter;
use crate::requests::{Commit, Context, Next, Work, commit_nothing};

/// Its name.
pub(crate) const NAME: &str = "pull";

/// How often its progress is written down at most, for those who ask another engine.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Makes the image ready, and keeps its exact name: a tag may mean something else tomorrow, and all nodes and all their starts
/// must be of the same.
pub(super) fn pull_image(ctx: Context<'_>) -> Work<'_> {
    let (cluster, limit) = (ctx.cluster().clone(), ctx.control.settings().work_deadline);
    Box::pin(async move {
        let nodes = nodes::read_nodes(ctx).await?;
        let Some(wanted) = nodes.cluster.wanted_image() else { return Ok(commit_nothing()) };
        let reporter = ctx.control.step_progress().start_reporting(&ctx.request.id);
        reporter.report_progress(&format!("asks for {wanted}"));
        let tell = |words: String| reporter.report_progress(&words);
        let image = tokio::select! {
            image = ctx.control.driver().ensure_image(wanted, &tell) => image?,
            () = save_progress(ctx, &reporter) => unreachable!("progress is written down for as long as there is any"),
        };
        let commit: Commit = Box::new(move |tx| {
            let nodes = nodes::load_nodes(tx, &cluster)?;
            let (scope, detail) = (nodes.cluster.owner.clone(), serde_json::json!({ "image": image }));
            clusters::save(tx, &tarn_model::clusters::Cluster { image: Some(image.clone()), ..nodes.cluster })?;
            events::record(tx, events::ENGINE, scope.scope(), cluster.as_str(), "cluster.image_ready", &detail)?;
            Ok(Next::DoneUntil(tx.now().after(limit)))
        });
        Ok(commit)
    })
}

/// Writes down what is told, not too often. Who cannot has nothing to say to others for a while; the lease is the runner's.
async fn save_progress(ctx: Context<'_>, reporter: &ProgressReporter<'_>) {
    let mut told = reporter.watch_messages();
    loop {
        let (request, words) = (ctx.request.clone(), told.borrow_and_update().clone());
        let written = ctx.control.store().write(move |tx| requests::set_progress(tx, &request, &words)).await;
        if let Err(error) = written {
            tracing::debug!(request = %ctx.request.id, %error, "the progress of a pull was not written down");
        }
        tokio::time::sleep(WRITE_EVERY).await;
        if told.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
