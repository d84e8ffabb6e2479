//! The loops of the reconcilers: each reconciler returns when it wants to run again.

use std::time::Duration;

use tarn_control::{Control, Result, reconcilers};

/// The pause after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Runs all reconcilers without end.
pub(crate) async fn run_reconcilers(control: Control) {
    tokio::join!(
        run_expiry(&control),
        run_instances(&control),
        run_gpus(&control),
        run_access(&control),
        run_objects(&control),
        run_jobs(&control)
    );
}

async fn run_expiry(control: &Control) {
    loop {
        tokio::time::sleep(next_pause("expiry", reconcilers::expiry::tick(control).await)).await;
    }
}

async fn run_instances(control: &Control) {
    loop {
        // Does something only after a restart of the host, and tries again until that succeeded.
        if let Err(error) = reconcilers::reboots::recover(control).await {
            tracing::warn!(%error, "cannot determine yet which instances a restart of the host has ended");
        }
        let pause = next_pause("machines", reconcilers::instances::tick(control).await);
        // A change does not wait for the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::instances::changed(control)).await;
    }
}

async fn run_gpus(control: &Control) {
    loop {
        tokio::time::sleep(next_pause("gpus", reconcilers::gpus::tick(control).await)).await;
    }
}

async fn run_access(control: &Control) {
    loop {
        let pause = next_pause("access", reconcilers::access::tick(control).await);
        // An added or removed key takes effect before the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::access::changed(control)).await;
    }
}

async fn run_objects(control: &Control) {
    tokio::join!(
        run_object_count(control),
        run_object_empty(control),
        run_object_abandon(control),
        run_object_sweep(control)
    );
}

async fn run_object_count(control: &Control) {
    loop {
        tokio::time::sleep(next_pause("object counts", reconcilers::objects::store_request_counts(control).await))
            .await;
    }
}

async fn run_object_empty(control: &Control) {
    loop {
        let pause = next_pause("closed object storage", reconcilers::objects::empty_closed_accounts(control).await);
        // Object storage that was just disabled is emptied before the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::objects::wait_until_closed(control)).await;
    }
}

async fn run_object_abandon(control: &Control) {
    loop {
        tokio::time::sleep(next_pause(
            "abandoned uploads",
            reconcilers::objects::abort_abandoned_uploads(control).await,
        ))
        .await;
    }
}

async fn run_object_sweep(control: &Control) {
    loop {
        tokio::time::sleep(next_pause("object files", reconcilers::objects::sweep_object_files(control).await)).await;
    }
}

async fn run_jobs(control: &Control) {
    tokio::join!(run_job_tidying(control), run_node_sweep(control), run_job_file_sweep(control));
}

async fn run_job_tidying(control: &Control) {
    loop {
        let pause = next_pause("ended jobs", reconcilers::jobs::tidy(control).await);
        // A job that was just deleted is removed before the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::jobs::changed(control)).await;
    }
}

async fn run_node_sweep(control: &Control) {
    loop {
        tokio::time::sleep(next_pause("jobs on nodes", reconcilers::jobs::sweep_nodes(control).await)).await;
    }
}

async fn run_job_file_sweep(control: &Control) {
    loop {
        tokio::time::sleep(next_pause("job files", reconcilers::jobs::sweep_objects(control).await)).await;
    }
}

fn next_pause(reconciler: &str, outcome: Result<Duration>) -> Duration {
    outcome.unwrap_or_else(|error| {
        tracing::warn!(reconciler, %error, "a reconciler failed");
        AFTER_FAILURE
    })
}
