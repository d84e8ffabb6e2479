//! Processes that the guest starts for jobs, and that it must be able to end.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, WaitStatus};
use tokio::time::timeout;

use crate::link_service::Guest;
use crate::process::{ChildExit, Children};

/// How long a killed process may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// A process that continues when this is dropped.
#[derive(Debug)]
pub(super) struct ChildProcess {
    children: Arc<Children>,
    pid: Pid,
    /// `None` once the exit has been observed.
    exit: Option<ChildExit>,
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(super) struct HelperProcess(ChildProcess);

impl ChildProcess {
    /// Starts one.
    pub(super) fn start(guest: &Guest, command: &mut Command) -> io::Result<ChildProcess> {
        let (pid, exit) = guest.children.spawn(command)?;
        Ok(ChildProcess { children: guest.children.clone(), pid, exit: Some(exit) })
    }

    /// Waits for the exit; returns the status unless it was returned before.
    pub(super) async fn wait_exit(&mut self) -> Option<WaitStatus> {
        let status = self.exit.as_mut()?.await.ok();
        self.exit = None;
        status
    }

    /// Kills the process unless it has ended.
    pub(super) fn kill(&mut self) {
        if let Some(exit) = &mut self.exit
            && !self.children.kill_unless_ended(self.pid, exit)
        {
            self.exit = None;
        }
    }

    /// Kills the process and waits until it is gone. A process that is stuck in the kernel is not waited for.
    pub(super) async fn kill_and_wait(&mut self) {
        self.kill();
        let _ = timeout(KILL_TIMEOUT, self.wait_exit()).await;
    }
}

impl HelperProcess {
    /// Starts one.
    pub(super) fn start(guest: &Guest, command: &mut Command) -> io::Result<HelperProcess> {
        ChildProcess::start(guest, command).map(HelperProcess)
    }

    /// Waits for the exit and returns the status.
    pub(super) async fn wait_exit(&mut self) -> Option<WaitStatus> {
        self.0.wait_exit().await
    }

    /// Kills the process and waits until it is gone.
    pub(super) async fn kill_and_wait(&mut self) {
        self.0.kill_and_wait().await;
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.0.kill();
    }
}
