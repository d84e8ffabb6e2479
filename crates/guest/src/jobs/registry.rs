//! All jobs that the guest knows.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tarn_link::{JobEnd, KnownJob};

use super::attempts::attempt::{Attempt, Stage, save_outcome};
use super::paths::{JobPaths, LOG_FILE, ORDER_FILE, OUTCOME_FILE};

/// The maximum number of jobs. The engine forgets those that it no longer needs.
const MAX_JOBS: usize = 10_000;

/// The maximum number of attempts that are loaded per job. The engine keeps one at a time.
const MAX_ATTEMPTS: usize = 4;

/// The maximum length of an outcome that is read.
const MAX_OUTCOME: u64 = 64 << 10;

/// A job and its attempts.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Held while an attempt is started or the job is forgotten.
    pub(super) exclusive: tokio::sync::Mutex<()>,
    attempts: Mutex<BTreeMap<u32, Arc<Attempt>>>,
}

/// All jobs, by id.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    known: Mutex<BTreeMap<String, Arc<Job>>>,
    is_stopping: AtomicBool,
}

impl Job {
    /// Returns an attempt.
    pub(super) fn find_attempt(&self, number: u32) -> Option<Arc<Attempt>> {
        self.lock().get(&number).cloned()
    }

    /// Returns all attempts in order.
    pub(super) fn all_attempts(&self) -> Vec<(u32, Arc<Attempt>)> {
        self.lock().iter().map(|(number, attempt)| (*number, attempt.clone())).collect()
    }

    /// Adds an attempt.
    pub(super) fn add_attempt(&self, number: u32, attempt: Arc<Attempt>) {
        self.lock().insert(number, attempt);
    }

    /// Removes an attempt.
    pub(super) fn remove_attempt(&self, number: u32) -> Option<Arc<Attempt>> {
        self.lock().remove(&number)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, BTreeMap<u32, Arc<Attempt>>> {
        self.attempts.lock()
    }
}

impl Jobs {
    /// Loads the jobs from before a restart of the guest. Their processes are gone: a guest ends after all other
    /// processes. Unreadable jobs are skipped.
    pub(crate) fn load(root: &Path) -> Jobs {
        let entries = std::fs::read_dir(JobPaths::all_jobs_directory(root));
        if let Err(e) = &entries
            && e.kind() != io::ErrorKind::NotFound
        {
            eprintln!("tarn-guest: the stored jobs could not be read: {e}");
        }
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let all_paths = names.filter_map(|name| JobPaths::new(root, name.to_str()?));
        let jobs = all_paths.take(MAX_JOBS).filter_map(|paths| match load_job(&paths) {
            Ok(job) => Some((paths.job().to_owned(), Arc::new(job))),
            Err(e) => {
                eprintln!("tarn-guest: {} could not be loaded: {e}", paths.job());
                None
            }
        });
        Jobs { known: Mutex::new(jobs.collect()), is_stopping: AtomicBool::new(false) }
    }

    /// Returns a job.
    pub(super) fn find_job(&self, job: &str) -> Option<Arc<Job>> {
        self.lock().get(job).cloned()
    }

    /// Returns a job, and adds it if it is unknown; `None` if there are too many.
    pub(super) fn find_or_insert(&self, job: &str) -> Option<Arc<Job>> {
        let mut known = self.lock();
        if known.len() >= MAX_JOBS && !known.contains_key(job) {
            return None;
        }
        Some(known.entry(job.to_owned()).or_default().clone())
    }

    /// Returns whether a job is still the one that is registered under its id.
    pub(super) fn is_known(&self, name: &str, job: &Arc<Job>) -> bool {
        self.find_job(name).is_some_and(|known| Arc::ptr_eq(&known, job))
    }

    /// Removes a job.
    pub(super) fn remove_job(&self, job: &str) {
        self.lock().remove(job);
    }

    /// Lists all jobs for the engine.
    pub(super) fn list_known(&self) -> Vec<KnownJob> {
        let known = self.lock();
        let shown = known.iter().map(|(name, job)| {
            let attempts = job.all_attempts();
            let running = attempts.iter().any(|(_, attempt)| attempt.is_running());
            KnownJob { job: name.clone(), attempts: attempts.into_iter().map(|(number, _)| number).collect(), running }
        });
        shown.collect()
    }

    /// Returns whether the instance is stopping.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Tells all supervisors that the instance is stopping.
    pub(crate) fn announce_shutdown(&self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        for attempt in self.running_attempts() {
            attempt.announce_shutdown();
        }
    }

    /// Saves the output of attempts that did not end; all other processes are gone.
    pub(crate) fn save_remaining_output(&self) {
        for attempt in self.running_attempts() {
            attempt.drain_pipe();
            attempt.advance_stage(Stage::Ended(JobEnd::Lost));
        }
    }

    fn running_attempts(&self) -> Vec<Arc<Attempt>> {
        let attempts = self.lock().values().flat_map(|job| job.all_attempts()).collect::<Vec<_>>();
        attempts.into_iter().map(|(_, attempt)| attempt).filter(|attempt| attempt.is_running()).collect()
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.known.lock()
    }
}

/// Loads the attempts of a job. An attempt without an order was never started, or is forgotten; its files are removed
/// when its number is used again, or with the job.
fn load_job(paths: &JobPaths) -> io::Result<Job> {
    let job = Job::default();
    let names = std::fs::read_dir(paths.state_directory())?.flatten().map(|entry| entry.file_name());
    let numbers = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    for number in numbers.filter(|number| holds_attempt(&paths.attempt_directory(*number))).take(MAX_ATTEMPTS) {
        match load_attempt(paths.attempt_directory(number)) {
            Ok(attempt) => job.add_attempt(number, Arc::new(attempt)),
            Err(e) => eprintln!("tarn-guest: attempt {number} of {} could not be loaded: {e}", paths.job()),
        }
    }
    Ok(job)
}

/// Returns whether a directory holds an attempt that is not forgotten. After a power failure, an order may also be
/// empty for another reason.
fn holds_attempt(directory: &Path) -> bool {
    let length = |name| directory.join(name).symlink_metadata().ok().filter(Metadata::is_file).map(|found| found.len());
    length(ORDER_FILE).is_some_and(|order| order > 0 || length(LOG_FILE).is_some_and(|log| log > 0))
}

/// Loads an attempt. An attempt without an outcome is lost.
fn load_attempt(directory: PathBuf) -> io::Result<Attempt> {
    let text = crate::filesystem::read_bounded(&directory.join(OUTCOME_FILE), MAX_OUTCOME).unwrap_or_default();
    let end = serde_json::from_slice(&text).or_else(|_| {
        let end = JobEnd::Lost;
        save_outcome(&directory, &end).map(|()| end)
    });
    Attempt::open(directory, Stage::Ended(end.unwrap_or(JobEnd::Lost)), None)
}
