//! The supervisor of an attempt: a separate process, which starts the commands, logs their output and ends whatever
//! they started.
//!
//! Every process that loses its parent becomes the supervisor's child. So nothing that the commands start can escape
//! from it, and when the supervisor has no child left, nothing is left. It talks to the guest over its standard input,
//! and ends everything when the guest is gone. Start reading at [`run_supervisor`]; `shell` starts the commands, `log`
//! stores their output, `processes` finds and kills them, `messages` is the connection to the guest, and `monitor` is
//! the guest's side.

mod log;
pub(in crate::jobs) mod messages;
pub(in crate::jobs) mod monitor;
pub(in crate::jobs) mod processes;
mod shell;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, Uid, WaitOptions, WaitStatus};
use tarn_link::{Image, JobEnd, JobOrder};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::jobs::attempts::Failure;
use crate::jobs::paths::{JobPaths, LOG_FILE, ORDER_FILE};
use crate::jobs::supervisor::messages::{FromSupervisor, SupervisorChannel, ToSupervisor};
use crate::jobs::supervisor::processes::{ProcessSet, freezable_user};
use crate::process::Pipe;
use crate::users::find_session_account;
use log::{OutputLog, Transfer};

/// The argument for a guest that runs inside an instance.
pub(in crate::jobs) const IN_INSTANCE: &str = "instance";

/// The retry interval while something is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The interval of reaping while everything is being ended.
const REAP_INTERVAL: Duration = Duration::from_millis(20);

/// How long killed processes may take to disappear. One that takes longer is stuck in the kernel and does nothing more.
pub(in crate::jobs) const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a supervisor. Its standard input is the connection to the guest, its standard output the write end of the pipe
/// of the commands, and its standard error the read end.
pub fn run_supervisor(directory: &str, root: &str, user: &str, location: &str, image: Option<Image>) -> io::Result<()> {
    let channel = duplicate_close_on_exec(rustix::stdio::stdin())?;
    let (write, read) =
        (duplicate_close_on_exec(rustix::stdio::stdout())?, duplicate_close_on_exec(rustix::stdio::stderr())?);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let channel = SupervisorChannel::from_socket(channel)?;
        let (directory, root) = (Path::new(directory), Path::new(root));
        let arguments = Arguments { directory, root, user, image, is_instance: location == IN_INSTANCE };
        match start_commands(&arguments, write, read) {
            Ok(commands) => Supervisor { channel, commands, status: None, phase: Phase::Running }.supervise().await,
            Err(e) => {
                let failure = Failure::from_io_error("the commands could not be run", &e);
                channel.send(&FromSupervisor::NotStarted(failure)).await
            }
        }
    })
}

/// Duplicates a descriptor so that the commands do not inherit it.
fn duplicate_close_on_exec(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(descriptor, 3)?)
}

/// How far the attempt has been ended.
#[derive(Clone, Debug)]
enum Phase {
    Running,
    /// All processes got TERM, and are killed at the deadline.
    Terminating {
        end: JobEnd,
        until: Instant,
    },
    /// The instance is stopping, and the guest signals all processes.
    InstanceStopping,
}

/// The arguments of a supervisor.
struct Arguments<'a> {
    /// The guest's directory of the attempt.
    directory: &'a Path,
    root: &'a Path,
    user: &'a str,
    /// The settings of the container image, if the instance has one.
    image: Option<Image>,
    /// Whether the guest runs inside an instance.
    is_instance: bool,
}

/// Commands that are running.
struct RunningCommands {
    pipe: Pipe,
    log: OutputLog,
    shell: Pid,
    child_exits: tokio::signal::unix::Signal,
    timeout: Option<Instant>,
    grace: Duration,
    /// The user whose processes may be frozen while those of the attempt are searched.
    freezable: Option<Uid>,
}

/// Starts the commands. From here on, every orphan becomes a child of this process.
fn start_commands(arguments: &Arguments<'_>, write: OwnedFd, read: OwnedFd) -> io::Result<RunningCommands> {
    let order: JobOrder = serde_json::from_slice(&std::fs::read(arguments.directory.join(ORDER_FILE))?)?;
    let paths = JobPaths::new(arguments.root, &order.job).ok_or_else(|| io::Error::other("that is not a job id"))?;
    let image = arguments.image.as_ref();
    let account = find_session_account(arguments.root, arguments.user, image)?;
    let log = OutputLog::new(File::options().write(true).open(arguments.directory.join(LOG_FILE))?)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (pipe, child_exits) = (Pipe::new(read)?, signal(SignalKind::child())?);
    // The guest tells the supervisor what to do; the signals to all processes at the end of the instance must not end
    // it.
    for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()] {
        drop(signal(kind)?);
    }
    // The last step that can fail, so a failure leaves no process behind.
    let shell = shell::start_shell(arguments.root, (&account, image), &paths, &order, write)?;
    let timeout = order.timeout_seconds.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let grace = Duration::from_secs(order.grace_seconds.into());
    Ok(RunningCommands {
        pipe,
        log,
        shell,
        child_exits,
        timeout,
        grace,
        freezable: freezable_user(account.uid, arguments.is_instance),
    })
}

struct Supervisor {
    channel: SupervisorChannel,
    commands: RunningCommands,
    /// The exit status of the shell.
    status: Option<WaitStatus>,
    phase: Phase,
}

impl Supervisor {
    async fn supervise(mut self) -> io::Result<()> {
        let end_result = self.watch_commands().await;
        self.kill_everything().await;
        let drained = self.drain_output_pipe().await;
        // After a failure, nothing is sent, and the guest takes over.
        let end = end_result?;
        drained?;
        self.channel.send(&FromSupervisor::Ended(end)).await
    }

    /// Watches the commands until they have ended or must be ended.
    async fn watch_commands(&mut self) -> io::Result<JobEnd> {
        self.channel.send(&FromSupervisor::Started).await?;
        loop {
            if let Some(end) = self.poll_end() {
                return Ok(end);
            }
            let (until, has_room) = (self.next_deadline(), self.commands.log.has_room());
            // Not biased: processes that end all the time must not starve the messages of the guest.
            tokio::select! {
                _ = self.commands.child_exits.recv() => {}
                message = self.channel.receive() => match message? {
                    Some(message) => self.handle_message(message),
                    // Without a guest, the outcome has no receiver.
                    None => return Ok(JobEnd::Lost),
                },
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => self.stop_on_timeout(),
                transfer = log_output(&self.commands.pipe, &mut self.commands.log), if has_room => match transfer? {
                    Transfer::Moved(_) => drop(self.channel.try_send(&FromSupervisor::Grew)),
                    Transfer::Empty => {}
                    Transfer::DiskFull => self.wait_for_disk_space().await?,
                },
                () = sleep(RETRY_INTERVAL), if !has_room => self.commands.log.check_disk(),
            }
        }
    }

    /// Returns how the attempt ended, if it has.
    fn poll_end(&mut self) -> Option<JobEnd> {
        let is_alone = !self.reap_children();
        match &self.phase {
            Phase::Running => self.status.map(job_end),
            Phase::Terminating { end, until } if is_alone || *until <= Instant::now() => Some(end.clone()),
            Phase::InstanceStopping if is_alone => Some(JobEnd::Lost),
            Phase::Terminating { .. } | Phase::InstanceStopping => None,
        }
    }

    /// Reaps ended children; returns whether any child is left.
    fn reap_children(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.commands.shell => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running => self.commands.timeout,
            Phase::Terminating { until, .. } => Some(*until),
            Phase::InstanceStopping => None,
        }
    }

    fn handle_message(&mut self, message: ToSupervisor) {
        match message {
            ToSupervisor::Acknowledged { offset } => self.commands.log.acknowledge_output(offset),
            ToSupervisor::Stop { grace_seconds } => {
                self.terminate_all(JobEnd::Stopped, Duration::from_secs(grace_seconds.into()));
            }
            ToSupervisor::InstanceEnds if matches!(self.phase, Phase::Running) => self.phase = Phase::InstanceStopping,
            ToSupervisor::InstanceEnds => {}
        }
    }

    fn stop_on_timeout(&mut self) {
        if matches!(self.phase, Phase::Running) {
            self.terminate_all(JobEnd::TimedOut, self.commands.grace);
        }
    }

    /// Sends TERM to all processes; if that was done before, the earlier deadline counts.
    fn terminate_all(&mut self, end: JobEnd, grace: Duration) {
        let until = Instant::now() + grace;
        match &mut self.phase {
            Phase::Running => {
                // TERM is sent only once: a second one means something else to some programs.
                if !descendants().terminate() {
                    self.signal_shell_group(Signal::TERM);
                }
                self.phase = Phase::Terminating { end, until };
            }
            Phase::Terminating { until: before, .. } => *before = (*before).min(until),
            Phase::InstanceStopping => {}
        }
    }

    /// Sends a signal to the process group of the shell at once, which is most of what a job starts: with thousands of
    /// busy processes, finding them one by one may take minutes.
    fn signal_shell_group(&self, signal: Signal) {
        // Once the shell is reaped, its id is the group's only while the group has a member.
        if self.status.is_some() && !descendants().any_in_group(self.commands.shell) {
            return;
        }
        let _ = rustix::process::kill_process_group(self.commands.shell, signal);
    }

    /// Waits for disk space: the output stays in the pipe, and the commands wait.
    async fn wait_for_disk_space(&mut self) -> io::Result<()> {
        self.channel.try_send(&FromSupervisor::Full);
        match timeout(RETRY_INTERVAL, self.channel.receive()).await {
            Ok(message) => self.handle_message(message?.ok_or(io::ErrorKind::BrokenPipe)?),
            Err(_timed_out) => {}
        }
        Ok(())
    }

    /// Kills all remaining processes until none is left.
    async fn kill_everything(&mut self) {
        let deadline = Instant::now() + KILL_TIMEOUT;
        if self.reap_children() {
            self.signal_shell_group(Signal::KILL);
        }
        while self.reap_children() && Instant::now() < deadline {
            descendants().kill_all(self.commands.freezable);
            let _ = timeout(REAP_INTERVAL, self.commands.child_exits.recv()).await;
        }
    }

    /// Moves the rest of the pipe to the log, and no more: all writers are gone, or could not be killed.
    async fn drain_output_pipe(&mut self) -> io::Result<()> {
        let mut left = rustix::io::ioctl_fionread(&self.commands.pipe)?;
        while left > 0 {
            match self.commands.log.take_output(&self.commands.pipe)? {
                Transfer::Moved(length) => left = left.saturating_sub(length),
                Transfer::Empty => break,
                Transfer::DiskFull => self.wait_for_disk_space().await?,
            }
        }
        Ok(())
    }
}

/// Everything that the commands started.
fn descendants() -> ProcessSet<'static> {
    ProcessSet::DescendantsOf(rustix::process::getpid())
}

/// Waits for output and moves it to the log.
async fn log_output(pipe: &Pipe, log: &mut OutputLog) -> io::Result<Transfer> {
    pipe.when_readable(|pipe| take_or_block(log, pipe)).await
}

/// Moves output; reports an empty pipe as `WouldBlock`.
fn take_or_block(log: &mut OutputLog, pipe: &OwnedFd) -> io::Result<Transfer> {
    match log.take_output(pipe)? {
        Transfer::Empty => Err(io::ErrorKind::WouldBlock.into()),
        transfer => Ok(transfer),
    }
}

fn job_end(status: WaitStatus) -> JobEnd {
    let number = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match status.terminating_signal() {
        Some(signal) => JobEnd::Killed { signal: number(signal) },
        None => JobEnd::Exited { code: status.exit_status().map_or(u8::MAX, number) },
    }
}
