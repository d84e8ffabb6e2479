//! The timers of what must stay true: each reconciler says when it wants to be called again.

use std::time::Duration;

use tarn_control::{Control, Result, reconcilers};

/// The pause after a failure: whatever is wrong will hardly be right a moment later.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Runs them all, for ever.
pub(crate) async fn serve(control: Control) {
    tokio::join!(expiry(&control), machines(&control), access(&control));
}

async fn expiry(control: &Control) {
    loop {
        tokio::time::sleep(pause("expiry", reconcilers::expiry::tick(control).await)).await;
    }
}

async fn machines(control: &Control) {
    loop {
        tokio::time::sleep(pause("machines", reconcilers::machines::tick(control).await)).await;
    }
}

async fn access(control: &Control) {
    loop {
        let pause = pause("access", reconcilers::access::tick(control).await);
        // A key that was added or removed does not wait for the next turn.
        let _ = tokio::time::timeout(pause, reconcilers::access::changed(control)).await;
    }
}

fn pause(reconciler: &str, outcome: Result<Duration>) -> Duration {
    outcome.unwrap_or_else(|error| {
        tracing::warn!(reconciler, %error, "what must stay true could not be checked");
        AFTER_FAILURE
    })
}
