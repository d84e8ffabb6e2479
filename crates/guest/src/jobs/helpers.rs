//! Processes that the guest starts for jobs, and that it must be able to end.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, WaitStatus};
use tokio::time::timeout;

use crate::children::{Children, Ending};
use crate::service::Guest;

/// How long a killed process may take to be gone.
const MAX_DYING: Duration = Duration::from_secs(10);

/// A process that goes on by itself.
#[derive(Debug)]
pub(super) struct Child {
    children: Arc<Children>,
    pid: Pid,
    /// Gone when it has ended and that is known here.
    ending: Option<Ending>,
}

/// A process that ends when nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Helper(Child);

impl Child {
    /// Starts one.
    pub(super) fn start(guest: &Guest, command: &mut Command) -> io::Result<Child> {
        let (pid, ending) = guest.children.spawn(command)?;
        Ok(Child { children: guest.children.clone(), pid, ending: Some(ending) })
    }

    /// Waits until it has ended; how it did, if that was not told before.
    pub(super) async fn ended(&mut self) -> Option<WaitStatus> {
        let status = self.ending.as_mut()?.await.ok();
        self.ending = None;
        status
    }

    /// Kills it unless it has ended.
    pub(super) fn kill(&mut self) {
        if let Some(ending) = &mut self.ending
            && !self.children.kill(self.pid, ending)
        {
            self.ending = None;
        }
    }

    /// Kills it, and waits until it is gone, or will do nothing more.
    pub(super) async fn end(&mut self) {
        self.kill();
        let _ = timeout(MAX_DYING, self.ended()).await;
    }
}

impl Helper {
    /// Starts one.
    pub(super) fn start(guest: &Guest, command: &mut Command) -> io::Result<Helper> {
        Child::start(guest, command).map(Helper)
    }

    /// Waits until it has ended; how it did.
    pub(super) async fn ended(&mut self) -> Option<WaitStatus> {
        self.0.ended().await
    }

    /// Kills it, and waits until it is gone.
    pub(super) async fn end(&mut self) {
        self.0.end().await;
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.0.kill();
    }
}
