//! The timers of what must stay true: each reconciler says when it wants to be called again.

use std::time::Duration;

use tarn_control::{Control, Result, reconcilers};

/// The pause after a failure: whatever is wrong will hardly be right a moment later.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Runs them all, for ever.
pub(crate) async fn serve(control: Control) {
    tokio::join!(
        expiry(&control),
        machines(&control),
        gpus(&control),
        access(&control),
        objects(&control),
        jobs(&control)
    );
}

async fn expiry(control: &Control) {
    loop {
        tokio::time::sleep(pause("expiry", reconcilers::expiry::tick(control).await)).await;
    }
}

async fn machines(control: &Control) {
    loop {
        // Nothing to do but once after a restart of the machine, and again until that could be told.
        if let Err(error) = reconcilers::reboots::recover(control).await {
            tracing::warn!(%error, "what a restart of the machine has done could not be found out yet");
        }
        let pause = pause("machines", reconcilers::machines::tick(control).await);
        // Who waits for a turn to come back does not wait for the next look besides.
        let _ = tokio::time::timeout(pause, reconcilers::machines::changed(control)).await;
    }
}

async fn gpus(control: &Control) {
    loop {
        tokio::time::sleep(pause("gpus", reconcilers::gpus::tick(control).await)).await;
    }
}

async fn access(control: &Control) {
    loop {
        let pause = pause("access", reconcilers::access::tick(control).await);
        // A key that was added or removed does not wait for the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::access::changed(control)).await;
    }
}

async fn objects(control: &Control) {
    tokio::join!(count(control), empty(control), abandon(control), sweep(control));
}

async fn count(control: &Control) {
    loop {
        tokio::time::sleep(pause("object counts", reconcilers::objects::count(control).await)).await;
    }
}

async fn empty(control: &Control) {
    loop {
        let pause = pause("closed object storage", reconcilers::objects::empty(control).await);
        // What was given up a moment ago does not wait for the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::objects::closed(control)).await;
    }
}

async fn abandon(control: &Control) {
    loop {
        tokio::time::sleep(pause("abandoned uploads", reconcilers::objects::abandon(control).await)).await;
    }
}

async fn sweep(control: &Control) {
    loop {
        tokio::time::sleep(pause("object files", reconcilers::objects::sweep(control).await)).await;
    }
}

async fn jobs(control: &Control) {
    tokio::join!(tidy_jobs(control), sweep_nodes(control), sweep_shelf(control));
}

async fn tidy_jobs(control: &Control) {
    loop {
        let pause = pause("ended jobs", reconcilers::jobs::tidy(control).await);
        // What was deleted a moment ago does not wait for the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::jobs::changed(control)).await;
    }
}

async fn sweep_nodes(control: &Control) {
    loop {
        tokio::time::sleep(pause("jobs on nodes", reconcilers::jobs::sweep_nodes(control).await)).await;
    }
}

async fn sweep_shelf(control: &Control) {
    loop {
        tokio::time::sleep(pause("things of jobs", reconcilers::jobs::sweep_objects(control).await)).await;
    }
}

fn pause(reconciler: &str, outcome: Result<Duration>) -> Duration {
    outcome.unwrap_or_else(|error| {
        tracing::warn!(reconciler, %error, "what must stay true could not be checked");
        AFTER_FAILURE
    })
}
