//! A helper process: sends it an order and reads its reports. Besides starting an instance, it works in the mount
//! namespace of one, and grows a filesystem, which must be mounted for it without being visible to any other process.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::io::Errno;
use tarn_base::tasks::join;
use tarn_model::ids::VolumeId;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Error;
use crate::local::helper::order::{Mount, Order, Refused, Report, Unmount, Volume, Why};
use crate::local::host::loop_device::LoopDevice;
use crate::local::host::processes::Process;
use crate::local::host::xfs;
use crate::local::local_host::{LocalHost, failed};
use crate::local::volumes;

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

    /// Kills a helper that may not end, because it waits for something that cannot be interrupted.
    pub(super) fn kill(&mut self) {
        // It may have ended meanwhile.
        let _sent = self.child.start_kill();
    }

    /// Returns whether a killed helper has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
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

/// How long a call may take. Mounting repairs a filesystem that was not cleanly unmounted, and unmounting writes what
/// is not yet on disk: on a large filesystem both take seconds.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

const MOUNT_FAILED: &str = "the volume could not be mounted";
const UNMOUNT_FAILED: &str = "the volume could not be unmounted";
const GROW_FAILED: &str = "the volume could not be grown";

/// Mounts volumes in the instance that has this first process. Volumes that are already mounted stay. The devices must
/// stay open until this returns.
pub(super) async fn mount_volumes(
    host: &LocalHost,
    process: &Process,
    id_base: u32,
    volumes: &[(VolumeId, LoopDevice)],
) -> Result<(), Error> {
    let volume = |(id, device): &(VolumeId, LoopDevice)| Volume {
        id: id.clone(),
        device: device.path.clone(),
        number: device.number,
        file: device.file,
    };
    let volumes = volumes.iter().map(volume).collect();
    let order = Order::Mount(Mount { process: process.clone(), id_base, volumes });
    match run_order(host, &order).await.map_err(|error| failed(MOUNT_FAILED, &error))? {
        None => Ok(()),
        Some(refused) => Err(refusal_error(host, refused).await),
    }
}

/// Unmounts a volume from the instance that has this first process. Returns whether it is unmounted now, which it is
/// not while processes use it.
pub(super) async fn unmount_from_instance(
    host: &LocalHost,
    process: &Process,
    id: &VolumeId,
    number: u64,
) -> Result<bool, Error> {
    let order = Order::Unmount(Unmount { process: process.clone(), id: id.clone(), number });
    match run_order(host, &order).await.map_err(|error| failed(UNMOUNT_FAILED, &error))? {
        None => Ok(true),
        Some(Refused { why: Why::Busy, .. }) => Ok(false),
        Some(refused) => Err(refusal_error(host, refused).await),
    }
}

/// Grows the filesystem of a volume to the size of its device, wherever it is mounted.
pub(super) async fn grow_filesystem(host: &LocalHost, device: &LoopDevice) -> Result<(), Error> {
    let path = device.path.clone();
    let error = match join(tokio::task::spawn_blocking(move || xfs::grow_to_device(&path))).await {
        Ok(bytes) => {
            tracing::info!(bytes, "the filesystem of a volume has grown");
            return Ok(());
        }
        Err(error) => error,
    };
    let known = || volumes::volumes_by_device(host).ok()?.remove(&device.number);
    if error.kind() == io::ErrorKind::StorageFull {
        tracing::warn!(%error, "{GROW_FAILED}");
        return Err(Error::Retry(format!("{GROW_FAILED}: it has no free space left to record its new size")));
    }
    match known() {
        Some(id) if xfs::is_damage(&error) => Err(volumes::report_damage(host, &id, &error.to_string()).await),
        Some(id) if xfs::is_io_failure(&error) => Err(volumes::report_unreadable(host, &id, &error.to_string()).await),
        _ => Err(failed(GROW_FAILED, &error)),
    }
}

/// Runs one order in a helper; `Some` when the helper refused a volume.
async fn run_order(host: &LocalHost, order: &Order) -> io::Result<Option<Refused>> {
    let mut helper = HelperProcess::spawn(host)?;
    let call = async {
        helper.send_order(order).await?;
        match helper.read_report().await? {
            Report::Done => Ok(None),
            Report::Refused(refused) => Ok(Some(refused)),
            _ => Err(io::Error::other("the helper sent an unexpected report")),
        }
    };
    let done = tokio::time::timeout(TIMEOUT, call).await;
    let done = done.unwrap_or_else(|_| Err(io::Error::other("the helper took too long")));
    helper.finish(done.is_ok()).await;
    done
}

/// Turns the helper's refusal into the error that the owner sees.
async fn refusal_error(host: &LocalHost, refused: Refused) -> Error {
    let volume = &refused.volume;
    match refused.why {
        Why::Damaged { reason } => volumes::report_damage(host, volume, &reason).await,
        Why::Unreadable { reason } => volumes::report_unreadable(host, volume, &reason).await,
        Why::Taken { what } => Error::Permanent(format!("{volume} cannot be mounted in the instance: {what}")),
        Why::Busy => Error::Permanent(format!("{volume} is in use in the instance")),
        Why::Ended => Error::Retry("the instance has ended".into()),
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
