//! The loops of the reconcilers: each reconciler returns when it wants to run again.

use std::future::pending;
use std::time::Duration;

use tarn_control::reconcilers::clock::ClockWatch;
use tarn_control::reconcilers::{access, access_records, expiry, gpus, instances, jobs, objects, reboots, revocations};
use tarn_control::{Control, Result};

/// The pause after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// Runs all reconcilers without end. What was added, removed or deleted does not wait for the next turn: the last
/// future ends the pause.
pub(crate) async fn run_reconcilers(control: Control, clock: ClockWatch) {
    // In a task of its own: no other reconciler may delay the end of access.
    let watching = control.clone();
    let revocations = tokio::spawn(async move {
        repeat("revocations", || revocations::tick(&watching), || revocations::changed(&watching)).await;
    });
    let (control, clock) = (&control, &tokio::sync::Mutex::new(clock));
    tokio::join!(
        repeat("clock", || async move { clock.lock().await.tick(control).await }, pending),
        async { revocations.await.expect("the reconciler of revocations does not end") },
        repeat("expiry", || expiry::tick(control), pending),
        repeat("machines", || run_instances(control), || instances::changed(control)),
        repeat("gpus", || gpus::tick(control), pending),
        repeat("access", || access::tick(control), || access::changed(control)),
        repeat("access records", || access_records::tick(control), pending),
        repeat("object counts", || objects::store_request_counts(control), pending),
        repeat(
            "closed object storage",
            || objects::empty_closed_accounts(control),
            || objects::wait_until_closed(control)
        ),
        repeat("abandoned uploads", || objects::abort_abandoned_uploads(control), pending),
        repeat("object rules", || objects::apply_object_rules(control), || objects::wait_until_rules_change(control)),
        repeat("object files", || objects::sweep_object_files(control), || objects::wait_until_files_are_left(control)),
        repeat("ended jobs", || jobs::tidy(control), || jobs::changed(control)),
        repeat("jobs on nodes", || jobs::sweep_nodes(control), pending),
        repeat("job files", || jobs::sweep_objects(control), pending),
    );
}

async fn run_instances(control: &Control) -> Result<Duration> {
    // Does something only after a restart of the host, and tries again until that succeeded.
    if let Err(error) = reboots::recover(control).await {
        tracing::warn!(%error, "cannot determine yet which instances a restart of the host has ended");
    }
    instances::tick(control).await
}

async fn repeat<T, C>(reconciler: &str, turn: impl Fn() -> T, changed: impl Fn() -> C)
where
    T: Future<Output = Result<Duration>>,
    C: Future<Output = ()>,
{
    loop {
        let pause = turn().await.unwrap_or_else(|error| {
            tracing::warn!(reconciler, %error, "a reconciler failed");
            AFTER_FAILURE
        });
        let _ = tokio::time::timeout(pause, changed()).await;
    }
}
