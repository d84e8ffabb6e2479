//! The outputs that a job has at this moment: its first node is asked for them. What it says is believed only as far as it is
//! clean.

use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tarn_link::{Answer, Frame, FromOutputs, OutputsOrder, Purpose, Reader};
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::jobs::Job;
use tarn_store::job_nodes;
use tokio::io::AsyncRead;

use super::guests::{self, Link};
use super::outputs::{MAX_OUTPUTS, OutputFile, is_clean};
use crate::{Control, Error, Kind, Result};

/// How long a node may take to list the outputs of a job, to begin with one of them, or to go on with it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What there is at this moment in the directory of a job that has its turn.
pub(super) async fn list(control: &Control, job: &Job) -> Result<Vec<OutputFile>> {
    if job.config.outputs.is_empty() {
        return Ok(Vec::new());
    }
    let listing = async {
        let Some((mut reader, _writer)) = ask(control, job, Vec::new(), false).await? else { return Ok(Vec::new()) };
        let mut files = Vec::new();
        loop {
            let said: Option<FromOutputs> = reader.read_message().await.map_err(|error| silent(&job.id, &error))?;
            match said {
                Some(FromOutputs::File { path, size }) if is_clean(&path) && files.len() < MAX_OUTPUTS => {
                    files.push(OutputFile { path, size });
                }
                Some(FromOutputs::File { .. } | FromOutputs::Skipped { .. }) => {}
                Some(FromOutputs::End) => break,
                None => return Err(silent(&job.id, &"the stream ended too early")),
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files.dedup_by(|one, other| one.path == other.path);
        Ok(files)
    };
    in_time(&job.id, listing).await
}

/// Opens a file in the directory of a job that has its turn.
pub(super) async fn open(
    control: &Control,
    job: &Job,
    path: &str,
    range: impl Fn(u64) -> Range<u64>,
) -> Result<Option<(u64, BoxStream<'static, io::Result<Bytes>>)>> {
    if job.config.outputs.is_empty() {
        return Ok(None);
    }
    let opening = async {
        let Some((mut reader, _writer)) = ask(control, job, vec![path.to_owned()], true).await? else {
            return Ok(None);
        };
        loop {
            let said: Option<FromOutputs> = reader.read_message().await.map_err(|error| silent(&job.id, &error))?;
            match said {
                Some(FromOutputs::File { path: found, size }) if found == path => return Ok(Some((reader, size))),
                Some(FromOutputs::Skipped { .. }) => {}
                Some(FromOutputs::File { .. } | FromOutputs::End) => return Ok(None),
                None => return Err(silent(&job.id, &"the stream ended too early")),
            }
        }
    };
    let Some((reader, size)) = in_time(&job.id, opening).await? else { return Ok(None) };
    let range = range(size);
    let state = Live { reader, skip: range.start, remaining: range.end - range.start };
    let body =
        futures::stream::try_unfold(state, |mut live| async move { Ok(live.next().await?.map(|data| (data, live))) });
    Ok(Some((size, body.boxed())))
}

/// A file on its way from a node.
struct Live<R> {
    reader: Reader<R>,
    /// How much comes before what is wanted.
    skip: u64,
    /// How much is still wanted.
    remaining: u64,
}

impl<R: AsyncRead + Unpin> Live<R> {
    /// The next piece. A file that became shorter meanwhile is an error, and of one that grew no more than announced is read.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while self.remaining > 0 {
            let frame = tokio::time::timeout(PATIENCE, self.reader.read()).await.map_err(io::Error::from)?;
            let mut data = match frame.map_err(io::Error::other)? {
                Some(Frame::Data(data)) => data,
                Some(Frame::Eof) => return Err(io::Error::other("the file became shorter while it was read")),
                Some(Frame::Message(_) | Frame::Stderr(_)) | None => {
                    return Err(io::Error::other("the node did not send all of the file"));
                }
            };
            let skipped = data.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= skipped as u64;
            let _ = data.split_to(skipped);
            data.truncate(usize::try_from(self.remaining).unwrap_or(usize::MAX).min(data.len()));
            self.remaining -= data.len() as u64;
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Asks the first node of a job for its files; `None` where the node does not know the job yet.
async fn ask(control: &Control, job: &Job, only: Vec<String>, contents: bool) -> Result<Option<Link>> {
    let nodes = control.store().read(|tx| job_nodes::of_job(tx, &job.id)).await.map_err(Error::from)?;
    let Some(node) = nodes.first().map(|node| node.instance.clone()) else { return Ok(None) };
    let order = OutputsOrder { job: job.id.to_string(), patterns: job.config.outputs.clone(), only, contents };
    match guests::open(control, &node, Purpose::Outputs(Box::new(order))).await {
        Ok((Answer::Ready, link)) => Ok(Some(link)),
        Ok((Answer::NoSuchJob, _)) => Ok(None),
        Ok(_) => Err(unreachable(&node, &"its answer was not understood")),
        Err(trouble) => Err(unreachable(&node, &trouble)),
    }
}

async fn in_time<T>(job: &JobId, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| silent(job, &"it took too long");
    tokio::time::timeout(PATIENCE, work).await.map_err(late)?
}

fn silent(job: &JobId, cause: &dyn std::fmt::Display) -> Error {
    tracing::warn!(%job, %cause, "the outputs of a running job could not be read");
    let message = format!("the node of job {job} did not tell its files; try again, or wait until the job has ended");
    Error::new(Kind::Unavailable, "node_unreachable", message)
}

fn unreachable(node: &InstanceId, cause: &dyn std::fmt::Display) -> Error {
    tracing::warn!(instance = %node, %cause, "a node could not be asked for the outputs of a job");
    let message = format!("instance {node} does not answer now; try again, or wait until the job has ended");
    Error::new(Kind::Unavailable, "node_unreachable", message)
}
