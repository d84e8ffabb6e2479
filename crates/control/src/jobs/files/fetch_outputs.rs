//! The outputs of a job, from the guest onto the shelf. What the guest says is checked: it chooses names and sizes.

use std::collections::HashSet;
use std::time::Duration;

use tarn_link::{Answer, Frame, FromOutputs, OutputsOrder, Purpose};
use tarn_model::ids::{InstanceId, JobId};
use tokio::task::JoinSet;

use super::guests::{self, Link, Trouble, plain};
use super::outputs::{MAX_OUTPUTS, is_clean};
use super::shelf;
use crate::{Control, Error, Result};

/// How long a guest may be silent; it may have to look through a large directory.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many messages a guest may send: each file that matches is one, and one more if it could not be read.
const MAX_MESSAGES: usize = 2 * MAX_OUTPUTS;

/// How many small files are on their way to the disk at the same time.
const AT_ONCE: usize = 16;

/// So many files that could not be kept are told by name.
const TOLD: usize = 3;

/// What came of it.
pub(super) enum Fetched {
    /// Everything that could be kept is safe.
    All(Kept),
    /// The stream broke: why.
    Broken(String),
    /// What the guest said makes no sense, and would not the next time: what.
    Fault(String),
    /// They could not be put.
    Failed(Error),
}

/// What is safe, and what is not.
#[derive(Default)]
pub(super) struct Kept {
    /// The paths of what is safe.
    pub(super) paths: HashSet<String>,
    bytes: u64,
    skipped: Vec<String>,
    more_skipped: usize,
}

impl Kept {
    /// What the owner should know.
    pub(super) fn note(&self) -> Option<String> {
        let more = match self.more_skipped {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        (!self.skipped.is_empty()).then(|| format!("some outputs were not kept: {}{more}", self.skipped.join(", ")))
    }

    fn skip(&mut self, path: &str, reason: &str) {
        match self.skipped.len() < TOLD {
            true => self.skipped.push(format!("{} ({})", plain(path), plain(reason))),
            false => self.more_skipped += 1,
        }
    }
}

enum Stop {
    Broken(String),
    Fault(String),
    Failed(Error),
}

impl From<tarn_link::Error> for Stop {
    fn from(error: tarn_link::Error) -> Self {
        match error {
            tarn_link::Error::Protocol(_) => Stop::Fault(error.to_string()),
            tarn_link::Error::Stream(_) | tarn_link::Error::Refused(_) => Stop::Broken(error.to_string()),
        }
    }
}

impl From<Trouble> for Stop {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Fault(why) => Stop::Fault(why),
            Trouble::Broken(why) | Trouble::Refused(why) | Trouble::Impossible(why) => Stop::Broken(why),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Failed(error)
    }
}

/// Asks a guest for the outputs of a job and keeps them.
pub(super) async fn fetch(control: &Control, job: &JobId, node: &InstanceId, order: OutputsOrder) -> Fetched {
    match fetch_all(control, job, node, order).await {
        Ok(kept) => Fetched::All(kept),
        Err(Stop::Broken(why)) => Fetched::Broken(plain(&why)),
        Err(Stop::Fault(why)) => Fetched::Fault(plain(&why)),
        Err(Stop::Failed(error)) => Fetched::Failed(error),
    }
}

async fn fetch_all(
    control: &Control,
    job: &JobId,
    node: &InstanceId,
    order: OutputsOrder,
) -> std::result::Result<Kept, Stop> {
    let (answer, mut link) = guests::open(control, node, Purpose::Outputs(Box::new(order))).await?;
    let mut fetching = Fetching { control, job, kept: Kept::default(), finishing: JoinSet::new() };
    match answer {
        Answer::Ready => {}
        Answer::NoSuchJob => {
            fetching.kept.skip("all of them", "its directory is not there any more");
            return Ok(fetching.kept);
        }
        other => return Err(Stop::Fault(format!("it answered {other:?}"))),
    }
    for _ in 0..MAX_MESSAGES {
        let goes_on = match message(&mut link).await? {
            FromOutputs::End => false,
            FromOutputs::Skipped { path, reason } => fetching.skipped(&path, &reason).await.map(|()| true)?,
            FromOutputs::File { path, size } => fetching.file(&path, size, &mut link).await?,
        };
        if !goes_on {
            fetching.all_finished().await?;
            return Ok(fetching.kept);
        }
    }
    Err(Stop::Fault("it sent more messages than there can be files".to_owned()))
}

/// The taking in of all files.
struct Fetching<'a> {
    control: &'a Control,
    job: &'a JobId,
    kept: Kept,
    /// Files that are in, and on their way to the disk.
    finishing: JoinSet<Result<()>>,
}

impl Fetching<'_> {
    /// A file begins; says whether there may be others after it.
    async fn file(&mut self, path: &str, size: u64, link: &mut Link) -> std::result::Result<bool, Stop> {
        // Clients write outputs to where their paths say: nothing may lead out of their directory.
        if !is_clean(path) {
            return Err(Stop::Fault(format!("{path:?} is no clean path")));
        }
        if self.kept.paths.len() >= MAX_OUTPUTS {
            self.kept.skip(path, &format!("more than {MAX_OUTPUTS} files"));
            return Ok(false);
        }
        if size.saturating_add(self.kept.bytes) > self.control.settings().jobs.max_output_bytes {
            self.kept.skip(path, "too much together, this file and all after it");
            return Ok(false);
        }
        if !self.kept.paths.insert(path.to_owned()) {
            return Err(Stop::Fault(format!("it sent {path:?} twice")));
        }
        self.take(path, link).await.map(|()| true)
    }

    /// Takes one file in. It may have grown since the guest looked at its size, but not without limit.
    async fn take(&mut self, path: &str, link: &mut Link) -> std::result::Result<(), Stop> {
        let mut intake = shelf::put_output(self.control, self.job, path, None).await?;
        loop {
            match frame(link).await? {
                Frame::Data(data) if data.is_empty() => return Err(Stop::Fault("it sent nothing as data".to_owned())),
                Frame::Data(data) => {
                    self.kept.bytes += data.len() as u64;
                    if self.kept.bytes > self.control.settings().jobs.max_output_bytes {
                        return Err(Stop::Fault(format!("{path:?} grew beyond what is kept")));
                    }
                    intake.push(data).await?;
                }
                Frame::Eof => break,
                Frame::Message(_) | Frame::Stderr(_) => {
                    return Err(Stop::Fault("it did not send a file to its end".to_owned()));
                }
            }
        }
        if self.finishing.len() >= AT_ONCE {
            self.one_finished().await?;
        }
        self.finishing.spawn(intake.finish());
        Ok(())
    }

    /// Something cannot be given. If that turned out when a part of it had come, the part is not kept either.
    async fn skipped(&mut self, path: &str, reason: &str) -> Result<()> {
        self.kept.skip(path, reason);
        if self.kept.paths.remove(path) {
            self.all_finished().await?;
            shelf::remove_output(self.control, self.job, path).await?;
        }
        Ok(())
    }

    async fn all_finished(&mut self) -> Result<()> {
        while !self.finishing.is_empty() {
            self.one_finished().await?;
        }
        Ok(())
    }

    async fn one_finished(&mut self) -> Result<()> {
        match self.finishing.join_next().await {
            Some(done) => done.map_err(Error::internal)?,
            None => Ok(()),
        }
    }
}

async fn frame((reader, _): &mut Link) -> std::result::Result<Frame, Stop> {
    match tokio::time::timeout(PATIENCE, reader.read()).await {
        Ok(Ok(Some(frame))) => Ok(frame),
        Ok(Ok(None)) => Err(Stop::Broken("the stream ended before the last file".to_owned())),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Stop::Broken("it was silent for too long".to_owned())),
    }
}

async fn message(link: &mut Link) -> std::result::Result<FromOutputs, Stop> {
    match frame(link).await? {
        Frame::Message(message) => Ok(Frame::parse(&message)?),
        _ => Err(Stop::Fault("data came where a message belongs".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_only_some() {
        let mut kept = Kept::default();
        assert_eq!(kept.note(), None);
        (0..5).for_each(|at| kept.skip(&format!("link-{at}"), "it leads out"));
        assert_eq!(
            kept.note().unwrap(),
            "some outputs were not kept: link-0 (it leads out), link-1 (it leads out), link-2 (it leads out), and 2 more"
        );
    }
}
