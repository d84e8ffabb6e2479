//! The current outputs of a job that runs, read from its first node. Files with unclean paths are ignored, because the
//! guest is not trusted.

use std::io;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tarn_link::{Frame, FromOutputs, OutputsOrder, Purpose, Reader, Reply};
use tarn_model::ids::{InstanceId, JobId};
use tarn_model::jobs::Job;
use tarn_store::job_nodes;
use tokio::io::AsyncRead;

use super::outputs::{MAX_OUTPUTS, OutputFile, is_clean_path};
use crate::jobs::attempt::guest_calls::{self, GuestLink};
use crate::{Control, Error, Kind, Result};

/// How long a node may take to list the outputs of a job, to begin to send one of them, or to continue.
const NODE_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists the files in the directory of a job that runs.
pub(super) async fn list_running(control: &Control, job: &Job) -> Result<Vec<OutputFile>> {
    if job.config.outputs.is_empty() {
        return Ok(Vec::new());
    }
    let listing = async {
        let Some((mut reader, _writer)) = request_outputs(control, job, Vec::new(), false).await? else {
            return Ok(Vec::new());
        };
        let mut files = Vec::new();
        loop {
            let message: Option<FromOutputs> =
                reader.read_message().await.map_err(|error| no_reply_error(&job.id, &error))?;
            match message {
                Some(FromOutputs::File { path, size }) if is_clean_path(&path) && files.len() < MAX_OUTPUTS => {
                    files.push(OutputFile { path, size });
                }
                Some(FromOutputs::File { .. } | FromOutputs::Skipped { .. }) => {}
                Some(FromOutputs::End) => break,
                None => return Err(no_reply_error(&job.id, &"the stream ended too early")),
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files.dedup_by(|one, other| one.path == other.path);
        Ok(files)
    };
    within_timeout(&job.id, listing).await
}

/// Opens a file in the directory of a job that runs.
pub(super) async fn open_running(
    control: &Control,
    job: &Job,
    path: &str,
    range: impl Fn(u64) -> Range<u64>,
) -> Result<Option<(u64, BoxStream<'static, io::Result<Bytes>>)>> {
    if job.config.outputs.is_empty() {
        return Ok(None);
    }
    let opening = async {
        let Some((mut reader, _writer)) = request_outputs(control, job, vec![path.to_owned()], true).await? else {
            return Ok(None);
        };
        loop {
            let message: Option<FromOutputs> =
                reader.read_message().await.map_err(|error| no_reply_error(&job.id, &error))?;
            match message {
                Some(FromOutputs::File { path: found, size }) if found == path => return Ok(Some((reader, size))),
                Some(FromOutputs::Skipped { .. }) => {}
                Some(FromOutputs::File { .. } | FromOutputs::End) => return Ok(None),
                None => return Err(no_reply_error(&job.id, &"the stream ended too early")),
            }
        }
    };
    let Some((reader, size)) = within_timeout(&job.id, opening).await? else { return Ok(None) };
    let range = range(size);
    let state = NodeFile { reader, skip: range.start, remaining: range.end - range.start };
    let body =
        futures::stream::try_unfold(state, |mut file| async move { Ok(file.next().await?.map(|data| (data, file))) });
    Ok(Some((size, body.boxed())))
}

/// A file that a node is sending.
struct NodeFile<R> {
    reader: Reader<R>,
    /// How many bytes precede the requested ones.
    skip: u64,
    /// How many requested bytes are missing.
    remaining: u64,
}

impl<R: AsyncRead + Unpin> NodeFile<R> {
    /// Returns the next piece. It is an error if the file became shorter. If it grew, only the announced size is read.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        while self.remaining > 0 {
            let frame = tokio::time::timeout(NODE_TIMEOUT, self.reader.read()).await.map_err(io::Error::from)?;
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

/// Asks the first node of a job for its files; `None` if the node does not know the job yet.
async fn request_outputs(control: &Control, job: &Job, only: Vec<String>, contents: bool) -> Result<Option<GuestLink>> {
    let nodes = control.store().read(|tx| job_nodes::of_job(tx, &job.id)).await.map_err(Error::from)?;
    let Some(node) = nodes.first().map(|node| node.instance.clone()) else { return Ok(None) };
    let order = OutputsOrder { job: job.id.to_string(), patterns: job.config.outputs.clone(), only, contents };
    match guest_calls::open_stream(control, &node, Purpose::Outputs(Box::new(order))).await {
        Ok((Reply::Ready, link)) => Ok(Some(link)),
        Ok((Reply::NoSuchJob, _)) => Ok(None),
        Ok(_) => Err(unreachable_error(&node, &"its reply was not understood")),
        Err(error) => Err(unreachable_error(&node, &error)),
    }
}

async fn within_timeout<T>(job: &JobId, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| no_reply_error(job, &"the node took too long");
    tokio::time::timeout(NODE_TIMEOUT, work).await.map_err(late)?
}

fn no_reply_error(job: &JobId, cause: &dyn std::fmt::Display) -> Error {
    tracing::warn!(%job, %cause, "the outputs of a running job could not be read");
    let message = format!("the node of job {job} did not list its files; try again, or wait until the job has ended");
    Error::new(Kind::Unavailable, "node_unreachable", message)
}

fn unreachable_error(node: &InstanceId, cause: &dyn std::fmt::Display) -> Error {
    tracing::warn!(instance = %node, %cause, "a node could not be asked for the outputs of a job");
    let message = format!("instance {node} does not reply; try again, or wait until the job has ended");
    Error::new(Kind::Unavailable, "node_unreachable", message)
}
