//! Taking in the files of a job.

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::pipe::PipeFlags;
use tarn_link::{Error, Frame, Reader, Result};
use tokio::io::AsyncRead;
use tokio::time::timeout;

use super::failures::Failure;
use super::helpers::Helper;
use super::places::{Place, UNPACKED};
use super::{forget, start};
use crate::accounts::Account;
use crate::pipe::Pipe;
use crate::service::Guest;
use crate::spawn::run_in;

/// How long nothing may come, or go on.
const MAX_SILENCE: Duration = Duration::from_secs(120);

/// How long the last of an archive may take to be unpacked.
const MAX_UNPACKING: Duration = Duration::from_secs(600);

/// The longest words about what went wrong.
const MAX_WORDS: usize = 4 << 10;

/// Unpacks the archive that comes over a stream. The inner result is about the files, the outer about the stream.
pub(super) async fn receive<R: AsyncRead + Unpin>(
    guest: &Guest,
    place: &Place,
    reader: &mut Reader<R>,
) -> Result<std::result::Result<(), Failure>> {
    let failed = |e: io::Error| Failure::during("the files could not be unpacked", &e);
    let account = match guest.account() {
        Ok(account) => account,
        Err(e) => return Ok(Err(failed(e))),
    };
    let unpacked = match begin(guest, place, &account) {
        Ok((mut helper, input, words)) => {
            let unpacked = unpack(input, &words, reader).await;
            // Before what he unpacked is removed, who unpacks must be gone.
            if !matches!(unpacked, Ok(Ok(()))) {
                helper.end().await;
            }
            unpacked
        }
        Err(e) => Ok(Err(failed(e))),
    };
    let kept = match unpacked {
        Ok(Ok(())) => Ok(std::fs::write(place.state().join(UNPACKED), "").map_err(failed)),
        other => other,
    };
    if !matches!(kept, Ok(Ok(()))) {
        // What cannot be removed is replaced by the next try, or removed with the job.
        let _ = forget::remove_working(guest, place, &account).await;
    }
    kept
}

/// Reads what still comes over a stream, and needs none of it.
pub(super) async fn discard<R: AsyncRead + Unpin>(reader: &mut Reader<R>) -> Result<()> {
    while let Ok(Ok(Some(_))) = timeout(MAX_SILENCE, reader.read()).await {}
    Ok(())
}

/// Starts the helper that unpacks as the user, in an empty directory of the job.
fn begin(guest: &Guest, place: &Place, account: &Account) -> io::Result<(Helper, Pipe, Pipe)> {
    start::make_working(place, account)?;
    let (their_input, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (words, their_words) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let mut command = Command::new(&guest.settings.helper);
    command.arg("unpack").env_clear().stdin(their_input).stdout(their_words).stderr(Stdio::null());
    run_in(&mut command, account, &place.working(account))?;
    let helper = Helper::start(guest, &mut command)?;
    Ok((helper, Pipe::new(input)?, Pipe::new(words)?))
}

/// Carries the archive to the helper and hears what came of it.
async fn unpack<R: AsyncRead + Unpin>(
    input: Pipe,
    words: &Pipe,
    reader: &mut Reader<R>,
) -> Result<std::result::Result<(), Failure>> {
    let mut said = Vec::new();
    {
        let carrying = carry(input, reader);
        let hearing = hear(words, &mut said);
        tokio::pin!(carrying, hearing);
        tokio::select! {
            // The helper has ended before its time: it has something to say.
            heard = &mut hearing => heard?,
            carried = carrying => match carried {
                Ok(Ok(())) => match timeout(MAX_UNPACKING, hearing).await {
                    Ok(heard) => heard?,
                    Err(_) => return Ok(Err(Failure::passing("the files took too long to be unpacked"))),
                },
                other => return other,
            },
        }
    }
    let broken = || Failure::passing("the files could not be unpacked: the helper was killed");
    Ok(serde_json::from_slice(&said).unwrap_or_else(|_| Err(broken())))
}

/// Carries data until its end.
async fn carry<R: AsyncRead + Unpin>(input: Pipe, reader: &mut Reader<R>) -> Result<std::result::Result<(), Failure>> {
    loop {
        let frame = timeout(MAX_SILENCE, reader.read()).await;
        match frame.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?? {
            Some(Frame::Data(data)) => {
                let mut rest = data.as_ref();
                while !rest.is_empty() {
                    match timeout(MAX_SILENCE, input.write(rest)).await {
                        Ok(Ok(length)) => rest = &rest[length..],
                        // The helper is gone, and says why.
                        Ok(Err(_)) => std::future::pending().await,
                        Err(_) => return Ok(Err(Failure::passing("the disk of the node does not take the files"))),
                    }
                }
            }
            Some(Frame::Eof) => return Ok(Ok(())),
            Some(_) => return Err(Error::Protocol("something came that is no file".into())),
            None => return Err(Error::Protocol("the stream ended before the files did".into())),
        }
    }
}

async fn hear(words: &Pipe, said: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; MAX_WORDS];
    while said.len() < MAX_WORDS {
        match words.read(&mut buffer).await? {
            0 => break,
            length => said.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(())
}
