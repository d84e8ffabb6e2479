//! Processes that the guest starts for jobs, and that it must be able to end.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::PipeFlags;
use rustix::process::{Pid, WaitStatus};
use tokio::time::timeout;

use crate::link_service::Guest;
use crate::process::spawn::run_as_user_in_required;
use crate::process::{ChildExit, Children, Pipe};
use crate::users::Account;

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

    /// Starts this program again as the user, in a directory; returns its input and its output, too.
    pub(super) fn start_with_pipes(
        guest: &Guest,
        name: &str,
        account: &Account,
        directory: &Path,
    ) -> io::Result<(HelperProcess, Pipe, Pipe)> {
        let (their_input, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let (output, their_output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut command = Command::new(&guest.settings.helper);
        command.arg(name).env_clear().stdin(their_input).stdout(their_output).stderr(Stdio::null());
        run_as_user_in_required(&mut command, account, directory)?;
        Ok((HelperProcess::start(guest, &mut command)?, Pipe::new(input)?, Pipe::new(output)?))
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
