//! The guest's side of a running attempt: exchanges messages with its supervisor, and replaces it if it dies.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, Uid};
use tarn_link::JobEnd;
use tokio::time::{Instant, sleep, sleep_until};

use crate::jobs::attempts::attempt::{Attempt, Stage, SupervisorRequests};
use crate::jobs::helper_process::ChildProcess;
use crate::jobs::registry::Job;
use crate::jobs::supervisor::KILL_TIMEOUT;
use crate::jobs::supervisor::messages::{FromSupervisor, SupervisorChannel, ToSupervisor};
use crate::jobs::supervisor::processes::ProcessSet;
use crate::link_service::Guest;

/// The delay before a message is sent again to a supervisor whose buffer is full.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The interval and the maximum number of searches for processes whose supervisor died.
const ORPHAN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_ORPHAN_POLLS: usize = 200;

/// How much longer than expected an attempt may take to end after a stop. After that, its supervisor counts as stopped
/// or stuck.
const END_TIMEOUT_SLACK: Duration = Duration::from_secs(10);

/// Monitors one attempt.
pub(in crate::jobs) struct AttemptMonitor {
    pub(in crate::jobs) guest: Arc<Guest>,
    pub(in crate::jobs) job: Arc<Job>,
    pub(in crate::jobs) number: u32,
    pub(in crate::jobs) attempt: Arc<Attempt>,
    pub(in crate::jobs) channel: Arc<SupervisorChannel>,
    pub(in crate::jobs) supervisor: ChildProcess,
    /// The user whose processes may be frozen while those of the attempt are searched.
    pub(in crate::jobs) freezable: Option<Uid>,
}

impl AttemptMonitor {
    /// Monitors the attempt until it has ended.
    pub(in crate::jobs) async fn monitor_attempt(mut self, name: String) {
        let stage = match self.wait_for_end().await {
            Ok(stage @ Stage::NotStarted(_)) => {
                // Followers learn why; the attempt counts as never started.
                self.attempt.discard();
                self.job.remove_attempt(self.number);
                stage
            }
            Ok(stage) => stage,
            Err(gone) => {
                self.supervisor.kill_and_wait().await;
                kill_orphans(&name, self.freezable).await;
                self.attempt.drain_pipe();
                let killed = JobEnd::Killed { signal: u8::try_from(Signal::KILL.as_raw()).unwrap_or_default() };
                Stage::Ended(if gone.kind() == io::ErrorKind::TimedOut { JobEnd::Stopped } else { killed })
            }
        };
        self.attempt.advance_stage(match stage {
            // An attempt that ends while the instance stops was stopped by that, even if it ended normally.
            Stage::Ended(_) if self.guest.jobs.is_stopping() => Stage::Ended(JobEnd::Lost),
            stage => stage,
        });
    }

    /// Exchanges messages with the supervisor until it reports the end; an error if it is gone without a report, or
    /// does not end in time.
    async fn wait_for_end(&self) -> io::Result<Stage> {
        let mut requests = self.attempt.requests.subscribe();
        let (mut sent, mut deadline) = (SupervisorRequests::default(), None);
        loop {
            let wanted = *requests.borrow_and_update();
            if let Some(grace) = wanted.stop {
                let limit = Instant::now() + Duration::from_secs(grace.into()) + KILL_TIMEOUT + END_TIMEOUT_SLACK;
                deadline = Some(deadline.map_or(limit, |before: Instant| before.min(limit)));
            }
            let is_behind = !self.send_requests(wanted, &mut sent);
            tokio::select! {
                message = self.channel.receive() => match message?.ok_or(io::ErrorKind::BrokenPipe)? {
                    FromSupervisor::Started => self.attempt.advance_stage(Stage::Running),
                    FromSupervisor::NotStarted(failure) => return Ok(Stage::NotStarted(failure)),
                    FromSupervisor::Grew => self.attempt.update_log_length(),
                    FromSupervisor::Full => self.attempt.free_log_on_full_disk(),
                    FromSupervisor::Ended(end) => return Ok(Stage::Ended(end)),
                },
                // The sender lives as long as the attempt.
                _ = requests.changed() => {}
                () = sleep(RETRY_DELAY), if is_behind => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Sends new requests to the supervisor; returns whether all were sent.
    fn send_requests(&self, requests: SupervisorRequests, sent: &mut SupervisorRequests) -> bool {
        let messages = [
            (requests.acknowledged > sent.acknowledged)
                .then_some(ToSupervisor::Acknowledged { offset: requests.acknowledged }),
            requests
                .stop
                .filter(|_| requests.stop != sent.stop)
                .map(|grace_seconds| ToSupervisor::Stop { grace_seconds }),
        ];
        let all_sent = messages.iter().flatten().all(|message| self.channel.try_send(message));
        if all_sent {
            *sent = requests;
        }
        all_sent
    }
}

/// Kills what a supervisor left behind when it was killed. Its children became the guest's; the job id in their
/// environment identifies them.
async fn kill_orphans(job: &str, freezable: Option<Uid>) {
    for _ in 0..MAX_ORPHAN_POLLS {
        let variable = format!("TP_JOB_ID={job}");
        // With many processes this takes a while, and the guest has other streams to serve.
        let poll = tokio::task::spawn_blocking(move || {
            let is_any_left = !ProcessSet::MarkedBy(&variable).find_processes().is_empty();
            if is_any_left {
                ProcessSet::MarkedBy(&variable).kill_all(freezable);
            }
            is_any_left
        });
        if !matches!(poll.await, Ok(true)) {
            return;
        }
        sleep(ORPHAN_POLL_INTERVAL).await;
    }
}
