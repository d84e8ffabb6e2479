//! Simulated guests that only run jobs; a command is one of a few words. Tests can break their streams.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tarn_driver::Error;
use tarn_link::opening::accept;
use tarn_link::{Frame, FromJob, FromOutputs, JobEnd, JobOrder, KnownJob, Purpose, Reader, Reply, ToJob, Writer};
use tarn_model::ids::InstanceId;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::watch;

type Link = (Reader<ReadHalf<DuplexStream>>, Writer<WriteHalf<DuplexStream>>);

/// The guests of all instances.
#[derive(Clone, Default)]
pub(crate) struct Guests(Arc<Mutex<HashMap<InstanceId, Arc<Guest>>>>);

#[derive(Default)]
pub(crate) struct Guest {
    pub(crate) state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// How many streams were opened.
    pub(crate) dials: AtomicU64,
    /// A stream breaks after this many bytes; 0 means never.
    pub(crate) breaks_after: AtomicU64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) attempts: BTreeMap<(String, u32), Attempt>,
    /// The attempts that were dismissed.
    pub(crate) done: Vec<(String, u32)>,
    pub(crate) forgotten: Vec<String>,
    pub(crate) outputs: Vec<(String, Vec<u8>)>,
    /// These outputs turn out to be unreadable after they have been sent.
    pub(crate) unreadable: Vec<String>,
    pub(crate) files: HashMap<String, Vec<u8>>,
    /// Jobs of which only a directory is left. While there are any, the guest refuses new jobs.
    pub(crate) remembered: Vec<String>,
    /// It violates the protocol.
    pub(crate) is_confused: bool,
    /// It does not reply.
    pub(crate) is_silent: bool,
    /// It accepts requests to stop and ignores them.
    pub(crate) is_stubborn: bool,
    cuts: u64,
}

#[derive(Default)]
pub(crate) struct Attempt {
    pub(crate) log: Vec<u8>,
    pub(crate) end: Option<JobEnd>,
    pub(crate) acknowledged: u64,
}

impl Guests {
    pub(crate) fn of(&self, instance: &InstanceId) -> Arc<Guest> {
        self.0.lock().unwrap().entry(instance.clone()).or_default().clone()
    }

    pub(super) fn dial(&self, instance: &InstanceId) -> Result<tarn_driver::GuestStream, Error> {
        let guest = self.of(instance);
        if guest.state.lock().unwrap().is_silent {
            return Err(Error::Retry("the guest does not reply".into()));
        }
        guest.dials.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(guest.serve(theirs));
        Ok(Box::new(ours))
    }
}

impl Guest {
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap());
        self.changes.send_modify(|changes| *changes += 1);
        changed
    }

    /// Breaks all streams.
    pub(crate) fn cut(&self) {
        self.change(|state| state.cuts += 1);
    }

    /// Ends all running attempts.
    pub(crate) fn end_all(&self, end: &JobEnd) {
        self.change(|state| {
            for attempt in state.attempts.values_mut().filter(|attempt| attempt.end.is_none()) {
                attempt.end = Some(end.clone());
            }
        });
    }

    /// Adds output to all running attempts.
    pub(crate) fn print(&self, text: &str) {
        self.change(|state| {
            let running = state.attempts.values_mut().filter(|attempt| attempt.end.is_none());
            running.for_each(|attempt| attempt.log.extend(text.as_bytes()));
        });
    }

    async fn serve(self: Arc<Self>, stream: DuplexStream) {
        let cuts = self.state.lock().unwrap().cuts;
        let mut changes = self.changes.subscribe();
        let cut = async {
            loop {
                if self.state.lock().unwrap().cuts != cuts || changes.changed().await.is_err() {
                    return;
                }
            }
        };
        let (reader, writer) = tokio::io::split(stream);
        let mut link = (Reader::new(reader), Writer::new(writer));
        tokio::select! {
            _ = self.serve_purpose(&mut link) => {}
            () = cut => {}
        }
    }

    async fn serve_purpose(&self, (reader, writer): &mut Link) -> tarn_link::Result<()> {
        match accept(reader, writer).await? {
            Purpose::RunJob(order) => self.run(*order, (reader, writer)).await,
            Purpose::FollowJob { job, attempt, offset } => {
                if !self.state.lock().unwrap().attempts.contains_key(&(job.clone(), attempt)) {
                    return writer.message(&Reply::NoSuchJob).await;
                }
                writer.message(&Reply::Ready).await?;
                self.follow(&job, attempt, offset, (reader, writer)).await
            }
            Purpose::StopJob { job, attempt, .. } => {
                self.change(|state| {
                    if let Some(attempt) = state.attempts.get_mut(&(job, attempt))
                        && !state.is_stubborn
                    {
                        attempt.end.get_or_insert(JobEnd::Stopped);
                    }
                });
                writer.message(&Reply::Ready).await
            }
            Purpose::ForgetJob { job } => {
                self.change(|state| {
                    state.attempts.retain(|(known, _), _| *known != job);
                    state.remembered.retain(|known| *known != job);
                    state.forgotten.push(job);
                });
                writer.message(&Reply::Ready).await
            }
            Purpose::ListJobs => {
                let known = self.known();
                writer.message(&Reply::Jobs(known)).await
            }
            Purpose::Outputs(order) => {
                assert!(order.contents);
                writer.message(&Reply::Ready).await?;
                let (outputs, unreadable) = {
                    let state = self.state.lock().unwrap();
                    (state.outputs.clone(), state.unreadable.clone())
                };
                for (path, data) in outputs {
                    writer.message(&FromOutputs::File { path: path.clone(), size: data.len() as u64 }).await?;
                    writer.data(&data).await?;
                    writer.eof().await?;
                    if unreadable.contains(&path) {
                        writer.message(&FromOutputs::Skipped { path, reason: "it cannot be read".into() }).await?;
                    }
                }
                writer.message(&FromOutputs::End).await
            }
            other => panic!("{other:?} is not a purpose of jobs"),
        }
    }

    fn known(&self) -> Vec<KnownJob> {
        let mut known = BTreeMap::<String, KnownJob>::new();
        let state = self.state.lock().unwrap();
        let blank = |job: &String| KnownJob { job: job.clone(), attempts: Vec::new(), running: false };
        known.extend(state.remembered.iter().map(|job| (job.clone(), blank(job))));
        for ((job, number), attempt) in &state.attempts {
            let entry = known.entry(job.clone()).or_insert_with(|| blank(job));
            entry.attempts.push(*number);
            entry.running |= attempt.end.is_none();
        }
        known.into_values().collect()
    }

    async fn run(
        &self,
        order: JobOrder,
        (reader, writer): (&mut Reader<ReadHalf<DuplexStream>>, &mut Writer<WriteHalf<DuplexStream>>),
    ) -> tarn_link::Result<()> {
        let (job, number) = (order.job.clone(), order.attempt);
        if !self.state.lock().unwrap().remembered.is_empty() {
            return writer.message(&Reply::Refused { reason: "the guest knows too many jobs".into() }).await;
        }
        let is_known = self.state.lock().unwrap().attempts.contains_key(&(job.clone(), number));
        let has_files = self.state.lock().unwrap().files.contains_key(&job);
        if !is_known && order.has_files && !has_files {
            writer.message(&Reply::SendFiles).await?;
            let mut files = Vec::new();
            loop {
                match reader.read().await? {
                    Some(Frame::Data(data)) => files.extend(data),
                    Some(Frame::Eof) => break,
                    other => panic!("{other:?} is not a file"),
                }
            }
            self.change(|state| state.files.insert(job.clone(), files));
        } else {
            writer.message(&Reply::Ready).await?;
        }
        if let Some(words) = order.commands[0].strip_prefix("refuse ") {
            let may_work_later = words == "now";
            return writer.message(&FromJob::NotStarted { reason: "no room".into(), may_work_later }).await;
        }
        if !is_known {
            let attempt = simulate_commands(&order);
            self.change(|state| state.attempts.insert((job.clone(), number), attempt));
        }
        self.follow(&job, number, 0, (reader, writer)).await
    }

    async fn follow(
        &self,
        job: &str,
        number: u32,
        mut offset: u64,
        (reader, writer): (&mut Reader<ReadHalf<DuplexStream>>, &mut Writer<WriteHalf<DuplexStream>>),
    ) -> tarn_link::Result<()> {
        let key = (job.to_owned(), number);
        let mut changes = self.changes.subscribe();
        let sending = async {
            writer.message(&FromJob::Started).await?;
            if self.state.lock().unwrap().is_confused {
                return writer.message(&FromJob::Started).await;
            }
            let mut sent_bytes = 0;
            loop {
                changes.borrow_and_update();
                let (data, end) = match self.state.lock().unwrap().attempts.get(&key) {
                    Some(attempt) => {
                        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(attempt.log.len());
                        (attempt.log[from..attempt.log.len().min(from + 10_007)].to_vec(), attempt.end.clone())
                    }
                    None => return Ok(()),
                };
                if !data.is_empty() {
                    let limit = self.breaks_after.load(Ordering::SeqCst);
                    if limit > 0 && sent_bytes >= limit {
                        return Ok(());
                    }
                    offset += data.len() as u64;
                    sent_bytes += data.len() as u64;
                    writer.data(&data).await?;
                    continue;
                }
                if let Some(end) = end {
                    writer.message(&FromJob::Ended(end)).await?;
                    return std::future::pending().await;
                }
                if changes.changed().await.is_err() {
                    return Ok(());
                }
            }
        };
        let receiving = async {
            loop {
                match reader.read_message().await? {
                    Some(ToJob::Acknowledged { offset }) => {
                        self.change(|state| {
                            let attempt = state.attempts.get_mut(&key).expect("the attempt is followed");
                            assert!(offset <= attempt.log.len() as u64 && offset >= attempt.acknowledged, "{offset}");
                            attempt.acknowledged = offset;
                        });
                    }
                    Some(ToJob::Done) => {
                        self.change(|state| {
                            state.attempts.remove(&key);
                            state.done.push(key.clone());
                        });
                        return Ok(());
                    }
                    None => return Ok(()),
                }
            }
        };
        tokio::select! {
            sent = sending => sent,
            received = receiving => received,
        }
    }
}

/// Simulates the commands until one ends the attempt or makes it wait.
fn simulate_commands(order: &JobOrder) -> Attempt {
    let (mut log, mut end) = (Vec::new(), Some(JobEnd::Exited { code: 0 }));
    for command in &order.commands {
        let (word, rest) = command.split_once(' ').unwrap_or((command, ""));
        match word {
            "echo" => log.extend(format!("{rest}\n").as_bytes()),
            "env" => {
                let value = order.environment.iter().rfind(|(name, _)| name == rest).map(|(_, value)| value.as_str());
                log.extend(format!("{rest}={}\n", value.unwrap_or_default()).as_bytes());
            }
            "count" => (0..rest.parse::<u32>().unwrap()).for_each(|n| log.extend(format!("line {n}\n").as_bytes())),
            "exit" => end = Some(JobEnd::Exited { code: rest.parse().unwrap() }),
            "fail-first" if order.attempt == 1 => end = Some(JobEnd::Exited { code: rest.parse().unwrap() }),
            "fail-first" => {}
            "wait" => end = None,
            "wait-unless-rank" => {
                let rank = order.environment.iter().find(|(name, _)| name == "NODE_RANK");
                end = (rank.unwrap().1 == rest).then_some(JobEnd::Exited { code: 7 });
            }
            other => panic!("unknown command {other}"),
        }
        if end != Some(JobEnd::Exited { code: 0 }) {
            break;
        }
    }
    Attempt { log, end, acknowledged: 0 }
}
