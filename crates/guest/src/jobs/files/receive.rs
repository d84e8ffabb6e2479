//! Receives the files of a job.

use std::io;
use std::time::Duration;

use tarn_link::{Error, Frame, Reader, Result};
use tokio::io::AsyncRead;
use tokio::time::timeout;

use crate::jobs::attempts::Failure;
use crate::jobs::attempts::start;
use crate::jobs::helper_process::HelperProcess;
use crate::jobs::paths::{JobPaths, UNPACKED_MARKER};
use crate::jobs::removal;
use crate::link_service::Guest;
use crate::process::Pipe;
use crate::users::Account;

/// How long the stream or the helper may be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long unpacking may take after the end of the archive.
const UNPACK_TIMEOUT: Duration = Duration::from_secs(600);

/// The maximum length of the helper's result.
const MAX_RESULT: usize = 4 << 10;

/// Unpacks the archive that arrives over a stream. The inner result concerns the files, the outer one the stream.
pub(in crate::jobs) async fn receive_files<R: AsyncRead + Unpin>(
    guest: &Guest,
    paths: &JobPaths,
    reader: &mut Reader<R>,
) -> Result<std::result::Result<(), Failure>> {
    let failed = |e: io::Error| Failure::from_io_error("the files could not be unpacked", &e);
    let account = match guest.account() {
        Ok(account) => account,
        Err(e) => return Ok(Err(failed(e))),
    };
    let unpacked = match start_unpack_helper(guest, paths, &account) {
        Ok((mut helper, input, result)) => {
            let unpacked = unpack_stream(input, &result, reader).await;
            // The helper must be gone before its files are removed.
            if !matches!(unpacked, Ok(Ok(()))) {
                helper.kill_and_wait().await;
            }
            unpacked
        }
        Err(e) => Ok(Err(failed(e))),
    };
    let result = match unpacked {
        Ok(Ok(())) => Ok(std::fs::write(paths.state_directory().join(UNPACKED_MARKER), "").map_err(failed)),
        other => other,
    };
    if !matches!(result, Ok(Ok(()))) {
        // Remaining files are replaced by the next attempt, or removed with the job.
        let _ = removal::remove_working_directory(guest, paths, &account).await;
    }
    result
}

/// Reads and discards the rest of a stream.
pub(in crate::jobs) async fn discard_stream<R: AsyncRead + Unpin>(reader: &mut Reader<R>) -> Result<()> {
    while let Ok(Ok(Some(_))) = timeout(IDLE_TIMEOUT, reader.read()).await {}
    Ok(())
}

/// Starts the helper that unpacks as the user, in an empty directory of the job.
fn start_unpack_helper(guest: &Guest, paths: &JobPaths, account: &Account) -> io::Result<(HelperProcess, Pipe, Pipe)> {
    start::create_working_directory(paths, account)?;
    HelperProcess::start_with_pipes(guest, "unpack", account, &paths.working_directory(account))
}

/// Copies the archive to the helper and reads its result.
async fn unpack_stream<R: AsyncRead + Unpin>(
    input: Pipe,
    result: &Pipe,
    reader: &mut Reader<R>,
) -> Result<std::result::Result<(), Failure>> {
    let mut text = Vec::new();
    {
        let copying = copy_archive(input, reader);
        let reading = read_helper_result(result, &mut text);
        tokio::pin!(copying, reading);
        tokio::select! {
            // The helper ended early and reports why.
            read = &mut reading => read?,
            copied = copying => match copied {
                Ok(Ok(())) => match timeout(UNPACK_TIMEOUT, reading).await {
                    Ok(read) => read?,
                    Err(_) => return Ok(Err(Failure::temporary("the files took too long to be unpacked"))),
                },
                other => return other,
            },
        }
    }
    let broken = || Failure::temporary("the files could not be unpacked: the helper was killed");
    Ok(serde_json::from_slice(&text).unwrap_or_else(|_| Err(broken())))
}

/// Copies data until its end.
async fn copy_archive<R: AsyncRead + Unpin>(
    input: Pipe,
    reader: &mut Reader<R>,
) -> Result<std::result::Result<(), Failure>> {
    loop {
        let frame = timeout(IDLE_TIMEOUT, reader.read()).await;
        match frame.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            Some(Frame::Data(data)) => {
                let mut rest = data.as_ref();
                while !rest.is_empty() {
                    match timeout(IDLE_TIMEOUT, input.write(rest)).await {
                        Ok(Ok(length)) => rest = &rest[length..],
                        // The helper is gone, and its result has the reason.
                        Ok(Err(_)) => std::future::pending().await,
                        Err(_) => return Ok(Err(Failure::temporary("the disk of the node does not accept the files"))),
                    }
                }
            }
            Some(Frame::Eof) => return Ok(Ok(())),
            Some(_) => return Err(Error::Protocol("an unexpected frame arrived among the files".into())),
            None => return Err(Error::Protocol("the stream ended before the files did".into())),
        }
    }
}

async fn read_helper_result(result: &Pipe, text: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; MAX_RESULT];
    while text.len() < MAX_RESULT {
        match result.read(&mut buffer).await? {
            0 => break,
            length => text.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(())
}
