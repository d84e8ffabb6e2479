//! A helper process: sends it an order and reads its reports.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use rustix::io::Errno;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::local::helper::order::{Order, Report};
use crate::local::local_host::LocalHost;

/// The longest report that is read.
const MAX_REPORT: u64 = 64 << 10;

/// A running helper process.
pub(super) struct HelperProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl HelperProcess {
    /// Starts the helper of this host.
    pub(super) fn spawn(host: &LocalHost) -> io::Result<Self> {
        HelperProcess::spawn_program(&host.helper)
    }

    /// Starts a helper from its program and first arguments.
    pub(super) fn spawn_program(helper: &[OsString]) -> io::Result<Self> {
        let (program, arguments) =
            helper.split_first().ok_or_else(|| io::Error::other("no helper program is configured"))?;
        let mut command = Command::new(program);
        // The engine's environment may hold secrets, which the helper must not see.
        command.args(arguments).env_clear().current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the helper has no input or output"));
        };
        Ok(HelperProcess { child, input, output: BufReader::new(output) })
    }

    /// Sends the order, which is the first thing that a helper reads.
    pub(super) async fn send_order(&mut self, order: &Order) -> io::Result<()> {
        let order = serde_json::to_string(order)?;
        self.send_line(&order).await
    }

    /// Sends one line.
    pub(super) async fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await
    }

    /// Reads the next report; a report of a failure is returned as an error.
    pub(super) async fn read_report(&mut self) -> io::Result<Report> {
        read_report(&mut self.output).await
    }

    /// Splits the helper, for a caller that writes and reads at the same time.
    pub(super) fn into_parts(self) -> (Child, ChildStdin, BufReader<ChildStdout>) {
        (self.child, self.input, self.output)
    }

    /// Waits for a helper that has done its work and exits by itself; kills any other.
    pub(super) async fn finish(mut self, done: bool) {
        drop(self.input);
        if !done {
            let _gone = self.child.start_kill();
        }
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "waiting for the helper failed");
        }
    }
}

/// Reads the next report of a helper; a report of a failure is returned as an error.
pub(super) async fn read_report(output: &mut BufReader<ChildStdout>) -> io::Result<Report> {
    let mut line = String::new();
    output.take(MAX_REPORT).read_line(&mut line).await?;
    match serde_json::from_str(&line)? {
        Report::Failed { errno, reason } => Err(io::Error::new(error_kind(errno), reason)),
        report => Ok(report),
    }
}

/// Classifies an error of the kernel in the helper.
fn error_kind(errno: Option<i32>) -> io::ErrorKind {
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC) => io::ErrorKind::StorageFull,
        // The kernel does not support the operation, or not in this form.
        Some(Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_decides_the_kind() {
        let kind = |errno: Errno| error_kind(Some(errno.raw_os_error()));
        assert_eq!(kind(Errno::NOSPC), io::ErrorKind::StorageFull);
        for unsupported in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL] {
            assert_eq!(kind(unsupported), io::ErrorKind::Unsupported);
        }
        assert_eq!((kind(Errno::PERM), error_kind(None)), (io::ErrorKind::Other, io::ErrorKind::Other));
    }
}
