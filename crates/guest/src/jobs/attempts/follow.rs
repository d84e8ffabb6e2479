//! Follows an attempt: sends its output as it is written, and its outcome.

use std::sync::Arc;
use std::time::Duration;

use tarn_link::frames::MAX_DATA;
use tarn_link::{Error, FromJob, Reader, Reply, Result, Stream, ToJob, Writer};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::jobs::attempts::attempt::{Attempt, Stage};
use crate::jobs::registry::Job;
use crate::link_service::{Guest, send_refusal};

/// How long to wait for messages that were sent before a stream broke.
const FINAL_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves a follower of an attempt that may be unknown.
pub(in crate::jobs) async fn serve_follow<S: Stream>(
    guest: &Guest,
    (job, number, offset): (&str, u32, u64),
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let known = guest.jobs.find_job(job).and_then(|job| Some((job.find_attempt(number)?, job)));
    let Some((attempt, job)) = known else { return writer.message(&Reply::NoSuchJob).await };
    if !attempt.has_log_from(offset) {
        return send_refusal(&mut writer, "output this old is no longer kept".into()).await;
    }
    writer.message(&Reply::Ready).await?;
    follow_attempt(&job, (number, &attempt, offset), reader, writer).await
}

/// Follows an attempt from an offset on, until the engine has stored its outcome or the stream breaks.
pub(in crate::jobs) async fn follow_attempt<S: Stream>(
    job: &Job,
    (number, attempt, offset): (u32, &Arc<Attempt>, u64),
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let reading = read_acknowledgements(attempt, reader);
    tokio::pin!(reading);
    let is_done = tokio::select! {
        sent = send_progress(attempt, offset, &mut writer) => match sent {
            // An engine that no longer reads may have confirmed the outcome before.
            Err(broken @ Error::Stream(_)) => match timeout(FINAL_MESSAGE_TIMEOUT, reading).await {
                Ok(Ok(true)) => true,
                _ => return Err(broken),
            },
            sent => return sent,
        },
        read = &mut reading => read?,
    };
    if is_done {
        attempt.discard();
        job.remove_attempt(number);
    }
    Ok(())
}

/// Sends the available output and waits for more; after the outcome it waits forever.
async fn send_progress<W: AsyncWrite + Unpin>(
    attempt: &Attempt,
    mut offset: u64,
    writer: &mut Writer<W>,
) -> Result<()> {
    let mut progress = attempt.progress.subscribe();
    let mut is_started_sent = false;
    let mut buffer = vec![0; MAX_DATA];
    loop {
        let now = progress.borrow_and_update().clone();
        match &now.stage {
            Stage::Starting => {}
            Stage::NotStarted(failure) => return writer.message(&failure.to_message()).await,
            Stage::Running | Stage::Ended(_) if !is_started_sent => {
                writer.message(&FromJob::Started).await?;
                is_started_sent = true;
            }
            Stage::Running | Stage::Ended(_) => {}
        }
        while is_started_sent && offset < now.length {
            let most = usize::try_from(now.length - offset).unwrap_or(MAX_DATA).min(MAX_DATA);
            match attempt.read_log(&mut buffer[..most], offset)? {
                0 => return Err(Error::Refused("output this old is no longer kept".into())),
                length => {
                    writer.data(&buffer[..length]).await?;
                    offset += length as u64;
                }
            }
        }
        if let Stage::Ended(end) = now.stage {
            writer.message(&FromJob::Ended(end)).await?;
            return std::future::pending().await;
        }
        if progress.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Reads the messages of the engine; returns whether it no longer needs the attempt.
async fn read_acknowledgements<R: AsyncRead + Unpin>(attempt: &Attempt, mut reader: Reader<R>) -> Result<bool> {
    loop {
        match reader.read_message().await? {
            Some(ToJob::Acknowledged { offset }) => attempt.acknowledge_log(offset),
            Some(ToJob::Done) if !attempt.is_running() => return Ok(true),
            Some(ToJob::Done) => return Err(Error::Protocol("the attempt has not ended".into())),
            None => return Ok(false),
        }
    }
}
