//! Following an attempt: what it wrote, as it writes it, and how it ended.

use std::sync::Arc;
use std::time::Duration;

use tarn_link::frames::MAX_DATA;
use tarn_link::{Answer, Error, FromJob, Reader, Result, Stream, ToJob, Writer};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::attempts::{Attempt, Stage};
use super::registry::Job;
use crate::service::{Guest, refuse};

/// How long what was said before a stream broke may take to be heard.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves who follows an attempt that may be known.
pub(super) async fn serve<S: Stream>(
    guest: &Guest,
    (job, number, offset): (&str, u32, u64),
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let known = guest.jobs.find(job).and_then(|job| Some((job.attempt(number)?, job)));
    let Some((attempt, job)) = known else { return writer.message(&Answer::NoSuchJob).await };
    if !attempt.is_kept_from(offset) {
        return refuse(&mut writer, "so old output is kept no more".into()).await;
    }
    writer.message(&Answer::Ready).await?;
    follow(&job, (number, &attempt, offset), reader, writer).await
}

/// Tells everything from an offset on, until the engine has written the end down or the stream breaks.
pub(super) async fn follow<S: Stream>(
    job: &Job,
    (number, attempt, offset): (u32, &Arc<Attempt>, u64),
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let hearing = hear(attempt, reader);
    tokio::pin!(hearing);
    let is_done = tokio::select! {
        told = tell(attempt, offset, &mut writer) => match told {
            // Who listens no more may have said before that he has everything.
            Err(broken @ Error::Stream(_)) => match timeout(LAST_WORDS, hearing).await {
                Ok(Ok(true)) => true,
                _ => return Err(broken),
            },
            told => return told,
        },
        heard = &mut hearing => heard?,
    };
    if is_done {
        attempt.forget();
        job.remove(number);
    }
    Ok(())
}

/// Sends what there is, and waits for more; when all is said it waits for ever.
async fn tell<W: AsyncWrite + Unpin>(attempt: &Attempt, mut offset: u64, writer: &mut Writer<W>) -> Result<()> {
    let mut progress = attempt.progress.subscribe();
    let mut is_told = false;
    let mut buffer = vec![0; MAX_DATA];
    loop {
        let now = progress.borrow_and_update().clone();
        match &now.stage {
            Stage::Starting => {}
            Stage::NotStarted(failure) => return writer.message(&failure.said()).await,
            Stage::Running | Stage::Ended(_) if !is_told => {
                writer.message(&FromJob::Started).await?;
                is_told = true;
            }
            Stage::Running | Stage::Ended(_) => {}
        }
        while is_told && offset < now.length {
            let most = usize::try_from(now.length - offset).unwrap_or(MAX_DATA).min(MAX_DATA);
            match attempt.read(&mut buffer[..most], offset)? {
                0 => return Err(Error::Refused("so old output is kept no more".into())),
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

/// Hears what the engine says; whether it needs the attempt no more.
async fn hear<R: AsyncRead + Unpin>(attempt: &Attempt, mut reader: Reader<R>) -> Result<bool> {
    loop {
        match reader.read_message().await? {
            Some(ToJob::Acknowledged { offset }) => attempt.acknowledge(offset),
            Some(ToJob::Done) if !attempt.runs() => return Ok(true),
            Some(ToJob::Done) => return Err(Error::Protocol("the attempt has not ended".into())),
            None => return Ok(false),
        }
    }
}
