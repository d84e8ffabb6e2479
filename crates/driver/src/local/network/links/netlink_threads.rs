//! Turns on threads that may block. The kernel does what a netlink message asks for while it takes the message, and removing
//! an interface takes tens of milliseconds: the runtime's own threads have other work to do meanwhile.

use tokio::runtime::Builder;
use tokio::sync::Semaphore;

use super::netlink::failed;
use crate::Error;

/// The kernel changes one thing of the network at a time; more callers at once only get into each other's way.
const AT_ONCE: usize = 4;

/// Those who want to talk to the kernel.
#[derive(Debug)]
pub(in crate::local::network) struct Turns(Semaphore);

impl Turns {
    pub(in crate::local::network) fn new() -> Turns {
        Turns(Semaphore::new(AT_ONCE))
    }

    /// Does work on a thread of its own when it is its turn. Work that has begun goes on to its end, also when nobody waits for
    /// it any more.
    pub(in crate::local::network) async fn take<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let _turn = self.0.acquire().await.expect("the semaphore is never closed");
        let thread = tokio::task::spawn_blocking(move || {
            let runtime = Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| failed("reach the network", &error))?.block_on(work())
        });
        thread.await.map_err(|error| Error::Retry(format!("cannot reach the network: {error}")))?
    }
}
