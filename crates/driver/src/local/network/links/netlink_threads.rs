//! A limited number of blocking threads for netlink. The kernel executes a netlink message while it receives it, and
//! removing an interface takes tens of milliseconds: the runtime's threads must not block that long.

use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use super::netlink::io_failure;
use crate::Error;

/// The kernel makes one change to the network at a time, so more threads would only contend.
const MAX_THREADS: usize = 4;

/// Limits the threads that call the kernel.
#[derive(Debug)]
pub(in crate::local::network) struct NetlinkThreads(Semaphore);

impl NetlinkThreads {
    pub(in crate::local::network) fn new() -> NetlinkThreads {
        NetlinkThreads(Semaphore::new(MAX_THREADS))
    }

    /// Runs work on a blocking thread once a permit is free. Work that has started runs to its end, even when the
    /// caller no longer waits.
    pub(in crate::local::network) async fn run_on_thread<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _permit = self.0.acquire().await.expect("the semaphore is never closed");
        let thread = tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| io_failure("reach the network", &error))?.block_on(work())
        });
        thread.await.map_err(|error| Error::Retry(format!("cannot reach the network: {error}")))?
    }
}
