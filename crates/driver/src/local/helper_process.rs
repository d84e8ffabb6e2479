//! Talking to the helper process.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::local::helper::order::{Order, Report};
use crate::local::local_host::LocalHost;

/// No report is longer.
const MAX_REPORT: u64 = 64 << 10;

/// A helper process.
pub(super) struct HelperProcess {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl HelperProcess {
    /// Starts one.
    pub(super) fn spawn(host: &LocalHost) -> io::Result<Self> {
        HelperProcess::spawn_program(&host.helper)
    }

    /// Starts one by its program and its first arguments.
    pub(super) fn spawn_program(helper: &[OsString]) -> io::Result<Self> {
        let (program, arguments) = helper.split_first().ok_or_else(|| io::Error::other("there is no helper"))?;
        let mut command = Command::new(program);
        // What the engine was told by its environment, perhaps secrets, is not for the helper.
        command.args(arguments).env_clear().current_dir("/");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the helper has no input or output"));
        };
        Ok(HelperProcess { child, input, output: BufReader::new(output) })
    }

    /// Gives it its order, which is the first thing it hears.
    pub(super) async fn send_order(&mut self, order: &Order) -> io::Result<()> {
        let order = serde_json::to_string(order)?;
        self.send_line(&order).await
    }

    /// Says one line.
    pub(super) async fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await
    }

    /// The next report; one that says that it failed is an error.
    pub(super) async fn read_report(&mut self) -> io::Result<Report> {
        read_report(&mut self.output).await
    }

    /// Takes it apart, for whoever has to talk and to listen at once.
    pub(super) fn into_parts(self) -> (Child, ChildStdin, BufReader<ChildStdout>) {
        (self.child, self.input, self.output)
    }

    /// A helper that has done its work ends by itself; any other is ended.
    pub(super) async fn finish(mut self, done: bool) {
        drop(self.input);
        if !done {
            let _gone = self.child.start_kill();
        }
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "the helper could not be waited for");
        }
    }
}

/// The next report of a helper; one that says that it failed is an error.
pub(super) async fn read_report(output: &mut BufReader<ChildStdout>) -> io::Result<Report> {
    let mut line = String::new();
    output.take(MAX_REPORT).read_line(&mut line).await?;
    match serde_json::from_str(&line)? {
        Report::Failed { reason } if reason.contains("No space left") => {
            Err(io::Error::new(io::ErrorKind::StorageFull, reason))
        }
        Report::Failed { reason } if is_unsupported(&reason) => Err(io::Error::new(io::ErrorKind::Unsupported, reason)),
        Report::Failed { reason } => Err(io::Error::other(reason)),
        report => Ok(report),
    }
}

/// Whether the kernel said that it does not know such a thing (`ENOSYS`, `EOPNOTSUPP`) or not in this way (`EINVAL`).
fn is_unsupported(reason: &str) -> bool {
    ["(os error 38)", "(os error 95)", "(os error 22)"].iter().any(|code| reason.contains(code))
}
