//! The runner as a service: many requests at the same time, woken when one becomes due.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tarn_model::requests::Request;
use tarn_store::requests;
use tokio::task::{Id, JoinSet};

use super::Runner;

/// Other replicas do not notify this process, so the database is polled this often.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Runner {
    /// Runs until `stop` completes. Then running steps have `drain` to end, and the remaining leases are released.
    pub async fn serve(self, stop: impl Future<Output = ()>, drain: Duration) {
        let mut stop = std::pin::pin!(stop);
        let mut tasks = JoinSet::new();
        let mut held: HashMap<Id, Request> = HashMap::new();
        loop {
            // A request that pulls an image does not count: that may take hours, and the capacity bounds their number.
            let at_work = held.len().saturating_sub(self.control.memory.step_progress.reporting_steps());
            let free = (self.control.settings().parallel as usize).saturating_sub(at_work);
            let pause = self.lease_due_requests(free, &mut tasks, &mut held).await;
            tokio::select! {
                () = &mut stop => break,
                () = self.control.memory.due.notified() => {}
                Some(done) = tasks.join_next_with_id(), if !tasks.is_empty() => remove_finished(&mut held, done),
                () = tokio::time::sleep(pause) => {}
            }
        }
        let emptied = async {
            while let Some(done) = tasks.join_next_with_id().await {
                remove_finished(&mut held, done);
            }
        };
        if tokio::time::timeout(drain, emptied).await.is_err() {
            tasks.shutdown().await;
        }
        for request in held.into_values() {
            let given_back = self.control.store().write(move |tx| requests::release(tx, &request)).await;
            if let Err(error) = given_back {
                tracing::warn!(%error, "a lease could not be released; it expires");
            }
        }
    }

    /// Leases as many requests as there are free tasks; returns how long nothing more is due.
    async fn lease_due_requests(
        &self,
        free: usize,
        tasks: &mut JoinSet<()>,
        held: &mut HashMap<Id, Request>,
    ) -> Duration {
        if free == 0 {
            return POLL_INTERVAL;
        }
        let now = self.control.clock().now();
        let due = match self.control.store().read(requests::next_due).await {
            Ok(due) => due,
            Err(error) => {
                tracing::warn!(%error, "the next due request could not be read");
                return POLL_INTERVAL;
            }
        };
        match due {
            Some(due) if due <= now => {}
            Some(due) => return due.until(now).min(POLL_INTERVAL),
            None => return POLL_INTERVAL,
        }
        match self.lease_requests(u32::try_from(free).unwrap_or(u32::MAX)).await {
            Ok(leased) => {
                let more = !leased.is_empty();
                for request in leased {
                    let (runner, leased_request) = (self.clone(), request.clone());
                    let task = tasks.spawn(async move { runner.advance(request).await });
                    held.insert(task.id(), leased_request);
                }
                if more { Duration::from_millis(1) } else { POLL_INTERVAL }
            }
            Err(error) => {
                tracing::warn!(%error, "no request could be leased");
                POLL_INTERVAL
            }
        }
    }
}

fn remove_finished(held: &mut HashMap<Id, Request>, done: Result<(Id, ()), tokio::task::JoinError>) {
    match done {
        Ok((id, ())) => drop(held.remove(&id)),
        Err(error) => {
            tracing::error!(%error, "a step panicked; its request continues when its lease has expired");
            held.remove(&error.id());
        }
    }
}
