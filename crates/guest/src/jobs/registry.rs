//! All jobs that the guest knows.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tarn_link::{JobEnd, KnownJob};

use super::attempts::{Attempt, Stage, keep_outcome};
use super::places::{LOG, ORDER, OUTCOME, Place};

/// How many jobs may be known. The engine forgets those that it needs no more.
const MAX_JOBS: usize = 10_000;

/// How many attempts of a job of an earlier life may be known. The engine keeps one at a time.
const MAX_ATTEMPTS: usize = 4;

/// The longest outcome that is read.
const MAX_OUTCOME: u64 = 64 << 10;

/// A job.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Who starts an attempt, or forgets the job, does so alone.
    pub(super) turn: tokio::sync::Mutex<()>,
    attempts: Mutex<BTreeMap<u32, Arc<Attempt>>>,
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    known: Mutex<BTreeMap<String, Arc<Job>>>,
    instance_ends: AtomicBool,
}

impl Job {
    /// An attempt.
    pub(super) fn attempt(&self, number: u32) -> Option<Arc<Attempt>> {
        self.lock().get(&number).cloned()
    }

    /// All attempts, the first one first.
    pub(super) fn attempts(&self) -> Vec<(u32, Arc<Attempt>)> {
        self.lock().iter().map(|(number, attempt)| (*number, attempt.clone())).collect()
    }

    /// Adds an attempt.
    pub(super) fn add(&self, number: u32, attempt: Arc<Attempt>) {
        self.lock().insert(number, attempt);
    }

    /// Takes an attempt out.
    pub(super) fn remove(&self, number: u32) -> Option<Arc<Attempt>> {
        self.lock().remove(&number)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Arc<Attempt>>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Jobs {
    /// Finds the jobs of an earlier life. What ran then runs no more: a guest does not end before everybody else has.
    /// What cannot be read is no reason not to begin.
    pub(crate) fn load(root: &Path) -> Jobs {
        let entries = std::fs::read_dir(Place::all(root));
        if let Err(e) = &entries
            && e.kind() != io::ErrorKind::NotFound
        {
            eprintln!("tarn-guest: the jobs of an earlier life were not found: {e}");
        }
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let places = names.filter_map(|name| Place::new(root, name.to_str()?));
        let jobs = places.take(MAX_JOBS).filter_map(|place| match load(&place) {
            Ok(job) => Some((place.job().to_owned(), Arc::new(job))),
            Err(e) => {
                eprintln!("tarn-guest: {} was not found again: {e}", place.job());
                None
            }
        });
        Jobs { known: Mutex::new(jobs.collect()), instance_ends: AtomicBool::new(false) }
    }

    /// A job that is known.
    pub(super) fn find(&self, job: &str) -> Option<Arc<Job>> {
        self.lock().get(job).cloned()
    }

    /// A job, which is known from now on; none if there are too many.
    pub(super) fn enter(&self, job: &str) -> Option<Arc<Job>> {
        let mut known = self.lock();
        if known.len() >= MAX_JOBS && !known.contains_key(job) {
            return None;
        }
        Some(known.entry(job.to_owned()).or_default().clone())
    }

    /// Whether a job is still the one that is known by its name.
    pub(super) fn is_known(&self, name: &str, job: &Arc<Job>) -> bool {
        self.find(name).is_some_and(|known| Arc::ptr_eq(&known, job))
    }

    /// Takes a job out.
    pub(super) fn remove(&self, job: &str) {
        self.lock().remove(job);
    }

    /// All of them, as the engine sees them.
    pub(super) fn list(&self) -> Vec<KnownJob> {
        let known = self.lock();
        let shown = known.iter().map(|(name, job)| {
            let attempts = job.attempts();
            let running = attempts.iter().any(|(_, attempt)| attempt.runs());
            KnownJob { job: name.clone(), attempts: attempts.into_iter().map(|(number, _)| number).collect(), running }
        });
        shown.collect()
    }

    /// Whether the instance ends.
    pub(super) fn instance_ends(&self) -> bool {
        self.instance_ends.load(Ordering::SeqCst)
    }

    /// Tells all supervisors that the instance ends.
    pub(crate) fn prepare_for_the_end(&self) {
        self.instance_ends.store(true, Ordering::SeqCst);
        for attempt in self.running() {
            attempt.prepare_for_the_end();
        }
    }

    /// Keeps what attempts wrote that did not end; everybody else is dead.
    pub(crate) fn keep_the_rest(&self) {
        for attempt in self.running() {
            attempt.take_the_rest();
            attempt.advance(Stage::Ended(JobEnd::Lost));
        }
    }

    fn running(&self) -> Vec<Arc<Attempt>> {
        let attempts = self.lock().values().flat_map(|job| job.attempts()).collect::<Vec<_>>();
        attempts.into_iter().map(|(_, attempt)| attempt).filter(|attempt| attempt.runs()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The attempts of a job. One without an order was never begun, or is forgotten; it goes when its number is used again, or
/// with the job.
fn load(place: &Place) -> io::Result<Job> {
    let job = Job::default();
    let names = std::fs::read_dir(place.state())?.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    for number in numbers.filter(|number| is_known(&place.attempt(*number))).take(MAX_ATTEMPTS) {
        match load_attempt(place.attempt(number)) {
            Ok(attempt) => job.add(number, Arc::new(attempt)),
            Err(e) => eprintln!("tarn-guest: attempt {number} of {} was not found again: {e}", place.job()),
        }
    }
    Ok(job)
}

/// Whether there is an attempt that is not forgotten. After a power cut an order may be empty for another reason.
fn is_known(directory: &Path) -> bool {
    let length = |name| directory.join(name).symlink_metadata().ok().filter(Metadata::is_file).map(|found| found.len());
    length(ORDER).is_some_and(|order| order > 0 || length(LOG).is_some_and(|log| log > 0))
}

/// An attempt. One without an outcome is lost.
fn load_attempt(directory: PathBuf) -> io::Result<Attempt> {
    let text = crate::bounded::read(&directory.join(OUTCOME), MAX_OUTCOME).unwrap_or_default();
    let end = serde_json::from_slice(&text).or_else(|_| {
        let end = JobEnd::Lost;
        keep_outcome(&directory, &end).map(|()| end)
    });
    Attempt::open(directory, Stage::Ended(end.unwrap_or(JobEnd::Lost)), None)
}
