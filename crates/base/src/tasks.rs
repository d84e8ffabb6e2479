//! Work in tasks of its own, whose panics are not lost.

use tokio::task::JoinHandle;

/// Runs work to its end even when the caller stops waiting, so that nothing is left half done.
pub async fn run_to_completion<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    join(tokio::spawn(work)).await
}

/// Returns what a task returns; a panic in it continues in the caller. A runtime that stops drops the task and also the
/// caller, so that is no error.
pub async fn join<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_ends_without_its_caller() {
        let (go_on, told) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        let work = run_to_completion(async move {
            told.await.unwrap();
            done.send(()).unwrap();
        });
        assert!(work.now_or_never().is_none(), "the caller stops waiting");
        go_on.send(()).unwrap();
        ended.await.unwrap();
    }

    #[tokio::test]
    async fn panic_continues_in_the_caller() {
        let caller = tokio::spawn(run_to_completion(async { panic!("on purpose") }));
        assert!(caller.await.unwrap_err().is_panic());
    }
}
