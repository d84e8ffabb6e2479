//! Fetching the outputs of a job from the guest into object storage. The guest chooses names and sizes, so both are
//! checked.

use std::collections::HashSet;
use std::time::Duration;

use tarn_link::{Frame, FromOutputs, OutputsOrder, Purpose, Reply};
use tarn_model::ids::{InstanceId, JobId};
use tokio::task::JoinSet;

use super::job_files;
use super::job_space::{self, Reservation};
use super::outputs::{MAX_OUTPUTS, is_clean_path};
use crate::jobs::attempt::guest_calls::{self, GuestError, GuestLink, sanitize_guest_text};
use crate::{Control, Error, Result};

/// How long a guest may be silent; it may have to scan a large directory.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// How many messages a guest may send: one for each file, and one more if the file could not be read.
const MAX_MESSAGES: usize = 2 * MAX_OUTPUTS;

/// How many small files are written to disk concurrently.
const CONCURRENT_WRITES: usize = 16;

/// Why an output is skipped when the owner of the job has reached their limit.
const NO_ROOM: &str =
    "the limit of job files, logs and outputs is reached; all files after it are missing, too; delete jobs";

/// How many skipped files a note names.
const MAX_NAMED_SKIPS: usize = 3;

/// The result of fetching.
pub(super) enum Fetched {
    /// Everything that could be kept is stored.
    All(KeptOutputs),
    /// The stream broke.
    Broken(String),
    /// The guest violated the protocol, and would do so again.
    Fault(String),
    /// The outputs could not be stored.
    Failed(Error),
}

/// What was stored, and what was skipped.
#[derive(Default)]
pub(super) struct KeptOutputs {
    /// The paths that are stored.
    pub(super) paths: HashSet<String>,
    bytes: u64,
    skipped: Vec<String>,
    more_skipped: usize,
}

impl KeptOutputs {
    /// Returns a note for the owner about skipped files.
    pub(super) fn note(&self) -> Option<String> {
        let more = match self.more_skipped {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        (!self.skipped.is_empty()).then(|| format!("some outputs were not kept: {}{more}", self.skipped.join(", ")))
    }

    fn record_skip(&mut self, path: &str, reason: &str) {
        if self.skipped.len() < MAX_NAMED_SKIPS {
            self.skipped.push(format!("{} ({})", sanitize_guest_text(path), sanitize_guest_text(reason)))
        } else {
            self.more_skipped += 1
        }
    }
}

enum FetchError {
    Broken(String),
    Fault(String),
    Failed(Error),
}

impl From<tarn_link::Error> for FetchError {
    fn from(error: tarn_link::Error) -> Self {
        match error {
            tarn_link::Error::Protocol(_) => FetchError::Fault(error.to_string()),
            tarn_link::Error::Stream(_) | tarn_link::Error::Refused(_) => FetchError::Broken(error.to_string()),
        }
    }
}

impl From<GuestError> for FetchError {
    fn from(error: GuestError) -> Self {
        match error {
            GuestError::Fault(why) => FetchError::Fault(why),
            GuestError::Broken(why) | GuestError::Refused(why) | GuestError::Unsupported(why) => {
                FetchError::Broken(why)
            }
        }
    }
}

impl From<Error> for FetchError {
    fn from(error: Error) -> Self {
        FetchError::Failed(error)
    }
}

/// Asks a guest for the outputs of a job and stores them.
pub(super) async fn fetch_outputs(control: &Control, job: &JobId, node: &InstanceId, order: OutputsOrder) -> Fetched {
    match fetch_from_guest(control, job, node, order).await {
        Ok(kept) => Fetched::All(kept),
        Err(FetchError::Broken(why)) => Fetched::Broken(sanitize_guest_text(&why)),
        Err(FetchError::Fault(why)) => Fetched::Fault(sanitize_guest_text(&why)),
        Err(FetchError::Failed(error)) => Fetched::Failed(error),
    }
}

async fn fetch_from_guest(
    control: &Control,
    job: &JobId,
    node: &InstanceId,
    order: OutputsOrder,
) -> std::result::Result<KeptOutputs, FetchError> {
    let (reply, mut link) = guest_calls::open_stream(control, node, Purpose::Outputs(Box::new(order))).await?;
    let mut fetcher = OutputFetcher { control, job, kept: KeptOutputs::default(), finishing: JoinSet::new() };
    match reply {
        Reply::Ready => {}
        Reply::NoSuchJob => {
            fetcher.kept.record_skip("all of them", "its directory does not exist any more");
            return Ok(fetcher.kept);
        }
        other => return Err(FetchError::Fault(format!("the guest replied {other:?}"))),
    }
    for _ in 0..MAX_MESSAGES {
        let expects_more = match read_outputs_message(&mut link).await? {
            FromOutputs::End => false,
            FromOutputs::Skipped { path, reason } => fetcher.drop_skipped(&path, &reason).await.map(|()| true)?,
            FromOutputs::File { path, size } => fetcher.begin_file(&path, size, &mut link).await?,
        };
        if !expects_more {
            fetcher.wait_for_all_writes().await?;
            return Ok(fetcher.kept);
        }
    }
    Err(FetchError::Fault("the guest sent more messages than there can be files".to_owned()))
}

/// Receives the files of one guest.
struct OutputFetcher<'a> {
    control: &'a Control,
    job: &'a JobId,
    kept: KeptOutputs,
    /// Files that were received and are being written to disk.
    finishing: JoinSet<(String, Result<()>)>,
}

impl OutputFetcher<'_> {
    /// Receives a file. Returns whether more files may follow.
    async fn begin_file(
        &mut self,
        path: &str,
        size: u64,
        link: &mut GuestLink,
    ) -> std::result::Result<bool, FetchError> {
        // Clients write outputs to these paths, so a path must not lead out of their directory.
        if !is_clean_path(path) {
            return Err(FetchError::Fault(format!("{path:?} is not a clean path")));
        }
        if self.kept.paths.len() >= MAX_OUTPUTS {
            self.kept.record_skip(path, &format!("more than {MAX_OUTPUTS} files"));
            return Ok(false);
        }
        if size.saturating_add(self.kept.bytes) > self.control.settings().jobs.max_output_bytes {
            self.kept.record_skip(path, "the size limit is reached; all files after it are missing, too");
            return Ok(false);
        }
        if self.kept.paths.contains(path) {
            return Err(FetchError::Fault(format!("the guest sent {path:?} twice")));
        }
        match self.receive_file(path, size, link).await {
            Err(FetchError::Failed(error)) if job_space::is_limit_reached(&error) => {
                self.kept.record_skip(path, NO_ROOM);
                Ok(false)
            }
            received => received.map(|()| true),
        }
    }

    /// Reserves the space of a file. An earlier try may have stored it already: then it is replaced.
    async fn reserve_space(&self, path: &str, size: u64) -> Result<Reservation> {
        match Reservation::new(self.control, self.job, Some(size), 0).await {
            Err(error) if job_space::is_limit_reached(&error) => {
                let frees = job_files::output_size(self.control, self.job, path).await?;
                if frees == 0 { Err(error) } else { Reservation::new(self.control, self.job, Some(size), frees).await }
            }
            reserved => reserved,
        }
    }

    /// Receives the content of a file. It may have grown since the guest reported its size, but only up to the limit.
    async fn receive_file(
        &mut self,
        path: &str,
        size: u64,
        link: &mut GuestLink,
    ) -> std::result::Result<(), FetchError> {
        let mut space = self.reserve_space(path, size).await?;
        let mut intake = job_files::put_output(self.control, self.job, path, None).await?;
        loop {
            match read_frame(link).await? {
                Frame::Data(data) if data.is_empty() => {
                    return Err(FetchError::Fault("the guest sent an empty data frame".to_owned()));
                }
                Frame::Data(data) => {
                    self.kept.bytes += data.len() as u64;
                    if self.kept.bytes > self.control.settings().jobs.max_output_bytes {
                        return Err(FetchError::Fault(format!("{path:?} grew beyond the size limit")));
                    }
                    space.add_arrived(data.len() as u64).await?;
                    intake.push(data).await?;
                }
                Frame::Eof => break,
                Frame::Message(_) | Frame::Stderr(_) => {
                    return Err(FetchError::Fault("the guest did not send a whole file".to_owned()));
                }
            }
        }
        if self.finishing.len() >= CONCURRENT_WRITES {
            self.wait_for_one_write().await?;
        }
        self.kept.paths.insert(path.to_owned());
        let (control, job, path) = (self.control.clone(), self.job.clone(), path.to_owned());
        self.finishing.spawn(async move {
            // The space stays reserved until the transaction has counted it.
            let arrived = space.arrived();
            let stored = intake.finish_with(move |tx| job_space::require_room(tx, &control, &job, arrived)).await;
            drop(space);
            (path, stored)
        });
        Ok(())
    }

    /// Skips a file that the guest could not read. A part of it that was already received is removed.
    async fn drop_skipped(&mut self, path: &str, reason: &str) -> Result<()> {
        self.kept.record_skip(path, reason);
        if self.kept.paths.remove(path) {
            self.wait_for_all_writes().await?;
            job_files::remove_output(self.control, self.job, path).await?;
        }
        Ok(())
    }

    async fn wait_for_all_writes(&mut self) -> Result<()> {
        while !self.finishing.is_empty() {
            self.wait_for_one_write().await?;
        }
        Ok(())
    }

    async fn wait_for_one_write(&mut self) -> Result<()> {
        match self.finishing.join_next().await {
            Some(done) => match done.map_err(Error::internal)? {
                (path, Err(error)) if job_space::is_limit_reached(&error) => {
                    self.kept.paths.remove(&path);
                    self.kept.record_skip(&path, NO_ROOM);
                    Ok(())
                }
                (_, stored) => stored,
            },
            None => Ok(()),
        }
    }
}

async fn read_frame((reader, _): &mut GuestLink) -> std::result::Result<Frame, FetchError> {
    match tokio::time::timeout(SILENCE_TIMEOUT, reader.read()).await {
        Ok(Ok(Some(frame))) => Ok(frame),
        Ok(Ok(None)) => Err(FetchError::Broken("the stream ended before the last file".to_owned())),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(FetchError::Broken("the guest was silent for too long".to_owned())),
    }
}

async fn read_outputs_message(link: &mut GuestLink) -> std::result::Result<FromOutputs, FetchError> {
    match read_frame(link).await? {
        Frame::Message(message) => Ok(Frame::parse(&message)?),
        _ => Err(FetchError::Fault("the guest sent data instead of a message".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note names only some of the skipped files.
    #[test]
    fn note_names_some_skips() {
        let mut kept = KeptOutputs::default();
        assert_eq!(kept.note(), None);
        (0..5).for_each(|at| kept.record_skip(&format!("link-{at}"), "it leads out"));
        assert_eq!(
            kept.note().unwrap(),
            "some outputs were not kept: link-0 (it leads out), link-1 (it leads out), link-2 (it leads out), and 2 more"
        );
    }
}
