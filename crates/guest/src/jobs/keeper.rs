//! The guest's side of a running attempt: passes on what its supervisor says and should know, and stands in for it if it dies.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, Uid};
use tarn_link::JobEnd;
use tokio::time::{Instant, sleep, sleep_until};

use super::attempts::{Attempt, Stage, Wishes};
use super::conversation::{Conversation, FromSupervisor, ToSupervisor};
use super::helpers::Child;
use super::processes::Who;
use super::registry::Job;
use super::supervisor::MAX_DYING;
use crate::service::Guest;

/// How long it is waited before a supervisor that could hear no more is told again.
const AGAIN: Duration = Duration::from_millis(20);

/// How often it is looked for processes whose supervisor died, and how often there may still be some.
const LOOK: Duration = Duration::from_millis(50);
const MAX_LOOKS: usize = 200;

/// How much longer than it should take an attempt may take to end that was asked to. Then its supervisor was stopped by
/// somebody, or is stuck.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Who keeps an attempt.
pub(super) struct Keeper {
    pub(super) guest: Arc<Guest>,
    pub(super) job: Arc<Job>,
    pub(super) number: u32,
    pub(super) attempt: Arc<Attempt>,
    pub(super) conversation: Arc<Conversation>,
    pub(super) supervisor: Child,
    /// Whose processes may be held while those of the attempt are looked for.
    pub(super) held: Option<Uid>,
}

impl Keeper {
    /// Keeps the attempt until it has ended.
    pub(super) async fn run(mut self, name: String) {
        let stage = match self.listen().await {
            Ok(stage @ Stage::NotStarted(_)) => {
                // Who waits for it hears why; it counts as if it had never been begun.
                self.attempt.forget();
                self.job.remove(self.number);
                stage
            }
            Ok(stage) => stage,
            Err(gone) => {
                self.supervisor.end().await;
                end_orphans(&name, self.held).await;
                self.attempt.take_the_rest();
                let killed = JobEnd::Killed { signal: u8::try_from(Signal::KILL.as_raw()).unwrap_or_default() };
                Stage::Ended(if gone.kind() == io::ErrorKind::TimedOut { JobEnd::Stopped } else { killed })
            }
        };
        self.attempt.advance(match stage {
            // Whoever ends while the instance does was asked to, also if he ended in order.
            Stage::Ended(_) if self.guest.jobs.instance_ends() => Stage::Ended(JobEnd::Lost),
            stage => stage,
        });
    }

    /// Listens to the supervisor until it says how it ended; an error if it is gone without a word, or does not end in time.
    async fn listen(&self) -> io::Result<Stage> {
        let mut wishes = self.attempt.wishes.subscribe();
        let (mut told, mut last_moment) = (Wishes::default(), None);
        loop {
            let wanted = *wishes.borrow_and_update();
            if let Some(grace) = wanted.stop {
                let moment = Instant::now() + Duration::from_secs(grace.into()) + MAX_DYING + MAX_DELAY;
                last_moment = Some(last_moment.map_or(moment, |before: Instant| before.min(moment)));
            }
            let is_behind = !self.pass_on(wanted, &mut told);
            tokio::select! {
                said = self.conversation.hear() => match said?.ok_or(io::ErrorKind::BrokenPipe)? {
                    FromSupervisor::Started => self.attempt.advance(Stage::Running),
                    FromSupervisor::NotStarted(failure) => return Ok(Stage::NotStarted(failure)),
                    FromSupervisor::Grew => self.attempt.measure(),
                    FromSupervisor::Full => self.attempt.free_in_need(),
                    FromSupervisor::Ended(end) => return Ok(Stage::Ended(end)),
                },
                // The sender lives in the attempt.
                _ = wishes.changed() => {}
                () = sleep(AGAIN), if is_behind => {}
                () = sleep_until(last_moment.unwrap_or_else(Instant::now)), if last_moment.is_some() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Tells the supervisor what is new; whether it knows everything now.
    fn pass_on(&self, wishes: Wishes, told: &mut Wishes) -> bool {
        let news = [
            (wishes.acknowledged > told.acknowledged)
                .then_some(ToSupervisor::Acknowledged { offset: wishes.acknowledged }),
            wishes.stop.filter(|_| wishes.stop != told.stop).map(|grace_seconds| ToSupervisor::Stop { grace_seconds }),
        ];
        let knows_all = news.iter().flatten().all(|message| self.conversation.mention(message));
        if knows_all {
            *told = wishes;
        }
        knows_all
    }
}

/// Ends what a supervisor left behind when it was killed. Its children became the guest's; they are known by the id of the job
/// in their environment.
async fn end_orphans(job: &str, held: Option<Uid>) {
    for _ in 0..MAX_LOOKS {
        let mark = format!("TP_JOB_ID={job}");
        // Among many processes it takes a while, and the guest has others to serve.
        let look = tokio::task::spawn_blocking(move || {
            let is_anybody_left = !Who::MarkedBy(&mark).find().is_empty();
            if is_anybody_left {
                Who::MarkedBy(&mark).kill(held);
            }
            is_anybody_left
        });
        if !matches!(look.await, Ok(true)) {
            return;
        }
        sleep(LOOK).await;
    }
}
