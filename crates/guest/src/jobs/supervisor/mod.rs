//! The supervisor of an attempt: a process of its own, which starts the commands, writes their output down and ends whatever
//! they started.
//!
//! Every process that loses its parent becomes the supervisor's child. So nothing that the commands start gets away from it,
//! whatever it does, and when the supervisor has no child left, nothing is left. It talks to the guest over its standard
//! input, and ends everything when the guest is gone. Start reading at [`main`].

mod log;
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
use tokio::time::{Instant, sleep, timeout};

use super::conversation::{Conversation, FromSupervisor, ToSupervisor};
use super::failures::Failure;
use super::places::{LOG, ORDER, Place};
use super::processes::{Who, may_be_held};
use crate::accounts::of_sessions;
use crate::pipe::Pipe;
use log::{Log, Taken};

/// The word for a guest that has an instance for itself.
pub(super) const INSTANCE: &str = "instance";

/// How often it is tried again when something is full.
const RETRY: Duration = Duration::from_millis(200);

/// How often the dead are looked for while everything is ended.
const LOOK: Duration = Duration::from_millis(20);

/// How long killed processes may take to be gone. One that takes longer is stuck in the kernel and will do nothing more.
pub(super) const MAX_DYING: Duration = Duration::from_secs(60);

/// The life of a supervisor. Its standard input is the conversation with the guest, its output the end of the pipe that
/// the commands write to, and its error stream the other end.
pub fn main(directory: &str, root: &str, user: &str, place: &str, image: Option<Image>) -> io::Result<()> {
    let conversation = own(rustix::stdio::stdin())?;
    let (write, read) = (own(rustix::stdio::stdout())?, own(rustix::stdio::stderr())?);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let conversation = Conversation::over(conversation)?;
        let (directory, root) = (Path::new(directory), Path::new(root));
        let given = Given { directory, root, user, image, is_instance: place == INSTANCE };
        match begin(&given, write, read) {
            Ok(begun) => Supervisor { conversation, begun, status: None, phase: Phase::Running }.run().await,
            Err(e) => {
                let failure = Failure::during("the commands could not be run", &e);
                conversation.tell(&FromSupervisor::NotStarted(failure)).await
            }
        }
    })
}

/// A descriptor that the commands do not inherit.
fn own(given: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(given, 3)?)
}

/// How far the end is.
#[derive(Clone, Debug)]
enum Phase {
    /// The commands run.
    Running,
    /// All were asked to end, and will be killed then.
    Asked { end: JobEnd, until: Instant },
    /// The instance ends, and everybody was asked by the guest.
    Instance,
}

/// What a supervisor is given.
struct Given<'a> {
    /// The guest's own directory of the attempt.
    directory: &'a Path,
    root: &'a Path,
    user: &'a str,
    /// What the container image says, if the instance is of one.
    image: Option<Image>,
    /// Whether the guest has an instance for itself.
    is_instance: bool,
}

/// Commands that run.
struct Begun {
    pipe: Pipe,
    log: Log,
    shell: Pid,
    deaths: tokio::signal::unix::Signal,
    timeout: Option<Instant>,
    grace: Duration,
    /// Whose processes may be held while those of the attempt are looked for.
    held: Option<Uid>,
}

/// Starts the commands. From here on whoever loses his parent becomes a child of this process.
fn begin(given: &Given<'_>, write: OwnedFd, read: OwnedFd) -> io::Result<Begun> {
    let order: JobOrder = serde_json::from_slice(&std::fs::read(given.directory.join(ORDER))?)?;
    let place = Place::new(given.root, &order.job).ok_or_else(|| io::Error::other("that is no job"))?;
    let image = given.image.as_ref();
    let account = of_sessions(given.root, given.user, image)?;
    let log = Log::new(File::options().write(true).open(given.directory.join(LOG))?)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (pipe, deaths) = (Pipe::new(read)?, signal(SignalKind::child())?);
    // The guest tells the supervisor what to do; a signal that everybody gets at the end of the instance must not end it.
    for kind in [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()] {
        drop(signal(kind)?);
    }
    // The last that can fail: nobody is left behind by who does not begin.
    let shell = shell::start(given.root, (&account, image), &place, &order, write)?;
    let timeout = order.timeout_seconds.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let grace = Duration::from_secs(order.grace_seconds.into());
    Ok(Begun { pipe, log, shell, deaths, timeout, grace, held: may_be_held(account.uid, given.is_instance) })
}

struct Supervisor {
    conversation: Conversation,
    begun: Begun,
    /// How the shell ended.
    status: Option<WaitStatus>,
    phase: Phase,
}

impl Supervisor {
    async fn run(mut self) -> io::Result<()> {
        let watched = self.watch().await;
        self.end_everything().await;
        let taken = self.take_the_rest().await;
        // Whoever cannot go on says nothing, and the guest stands in for him.
        let end = watched?;
        taken?;
        self.conversation.tell(&FromSupervisor::Ended(end)).await
    }

    /// Watches over the commands until they have ended, or should be ended.
    async fn watch(&mut self) -> io::Result<JobEnd> {
        self.conversation.tell(&FromSupervisor::Started).await?;
        loop {
            if let Some(end) = self.has_ended() {
                return Ok(end);
            }
            let (until, has_room) = (self.deadline(), self.begun.log.has_room());
            // In no order: whoever starts and ends processes without end must not drown out the guest.
            tokio::select! {
                _ = self.begun.deaths.recv() => {}
                said = self.conversation.hear() => match said? {
                    Some(said) => self.obey(said),
                    // Without a guest nobody wants to know any more.
                    None => return Ok(JobEnd::Lost),
                },
                () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => self.time_is_over(),
                taken = self.begun.pipe.when_readable(|pipe| take(&mut self.begun.log, pipe)), if has_room => match taken? {
                    Taken::Some(_) => drop(self.conversation.mention(&FromSupervisor::Grew)),
                    Taken::Nothing => {}
                    Taken::Full => self.wait_for_room().await?,
                },
                () = sleep(RETRY), if !has_room => self.begun.log.look(),
            }
        }
    }

    /// How the attempt ended, if it has.
    fn has_ended(&mut self) -> Option<JobEnd> {
        let is_alone = !self.collect();
        match &self.phase {
            Phase::Running => self.status.map(said),
            Phase::Asked { end, until } if is_alone || *until <= Instant::now() => Some(end.clone()),
            Phase::Instance if is_alone => Some(JobEnd::Lost),
            Phase::Asked { .. } | Phase::Instance => None,
        }
    }

    /// Collects the dead; whether there is anybody left.
    fn collect(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.begun.shell => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Running => self.begun.timeout,
            Phase::Asked { until, .. } => Some(*until),
            Phase::Instance => None,
        }
    }

    fn obey(&mut self, said: ToSupervisor) {
        match said {
            ToSupervisor::Acknowledged { offset } => self.begun.log.acknowledge(offset),
            ToSupervisor::Stop { grace_seconds } => {
                self.ask_all(JobEnd::Stopped, Duration::from_secs(grace_seconds.into()));
            }
            ToSupervisor::InstanceEnds if matches!(self.phase, Phase::Running) => self.phase = Phase::Instance,
            ToSupervisor::InstanceEnds => {}
        }
    }

    fn time_is_over(&mut self) {
        if matches!(self.phase, Phase::Running) {
            self.ask_all(JobEnd::TimedOut, self.begun.grace);
        }
    }

    /// Asks everybody to end; who was asked already gets no more time than the shorter one.
    fn ask_all(&mut self, end: JobEnd, grace: Duration) {
        let until = Instant::now() + grace;
        match &mut self.phase {
            Phase::Running => {
                // Nobody is asked twice: to some programs that means something else.
                if !all().ask() {
                    self.signal_group(Signal::TERM);
                }
                self.phase = Phase::Asked { end, until };
            }
            Phase::Asked { until: before, .. } => *before = (*before).min(until),
            Phase::Instance => {}
        }
    }

    /// Sends a signal to the group of the shell, which is most of what a job starts, all at once: among thousands of processes
    /// that want to run, looking for them one by one may take minutes.
    fn signal_group(&self, signal: Signal) {
        // Once the shell is collected the number belongs to the group only for as long as somebody is in it.
        if self.status.is_some() && !all().are_in_group(self.begun.shell) {
            return;
        }
        let _ = rustix::process::kill_process_group(self.begun.shell, signal);
    }

    /// The disk is full: the output waits in the pipe, and the commands wait with it.
    async fn wait_for_room(&mut self) -> io::Result<()> {
        self.conversation.mention(&FromSupervisor::Full);
        match timeout(RETRY, self.conversation.hear()).await {
            Ok(said) => self.obey(said?.ok_or(io::ErrorKind::BrokenPipe)?),
            Err(_in_vain) => {}
        }
        Ok(())
    }

    /// Kills whatever is left, until nothing is.
    async fn end_everything(&mut self) {
        let deadline = Instant::now() + MAX_DYING;
        if self.collect() {
            self.signal_group(Signal::KILL);
        }
        while self.collect() && Instant::now() < deadline {
            all().kill(self.begun.held);
            let _ = timeout(LOOK, self.begun.deaths.recv()).await;
        }
    }

    /// Takes what is still in the pipe, and no more: everybody who wrote to it is gone, or could not be ended.
    async fn take_the_rest(&mut self) -> io::Result<()> {
        let mut left = rustix::io::ioctl_fionread(&self.begun.pipe)?;
        while left > 0 {
            match self.begun.log.take(&self.begun.pipe)? {
                Taken::Some(length) => left = left.saturating_sub(length),
                Taken::Nothing => break,
                Taken::Full => self.wait_for_room().await?,
            }
        }
        Ok(())
    }
}

/// Whatever the commands started.
fn all() -> Who<'static> {
    Who::DescendantsOf(rustix::process::getpid())
}

/// Takes output, in the way of who waits for more.
fn take(log: &mut Log, pipe: &OwnedFd) -> io::Result<Taken> {
    match log.take(pipe)? {
        Taken::Nothing => Err(io::ErrorKind::WouldBlock.into()),
        taken => Ok(taken),
    }
}

fn said(status: WaitStatus) -> JobEnd {
    let number = |number: i32| u8::try_from(number).unwrap_or(u8::MAX);
    match status.terminating_signal() {
        Some(signal) => JobEnd::Killed { signal: number(signal) },
        None => JobEnd::Exited { code: status.exit_status().map_or(u8::MAX, number) },
    }
}
