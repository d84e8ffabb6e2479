//! The files of a job that the engine asks for: a helper finds and reads them as the user, and the guest passes on what it says.

use std::io;
use std::process::{Command, Stdio};

use rustix::pipe::PipeFlags;
use tarn_link::frames::MAX_DATA;
use tarn_link::{Answer, FromOutputs, OutputsOrder, Reader, Result, Stream, Writer};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};

use super::helpers::Helper;
use super::places::Place;
use crate::pipe::Pipe;
use crate::service::{Guest, refuse};
use crate::spawn::run_in;

/// Serves who asks for the files of a job.
pub(super) async fn serve<S: Stream>(
    guest: &Guest,
    order: &OutputsOrder,
    mut reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let place = Place::new(&guest.settings.root, &order.job).filter(|_| guest.jobs.find(&order.job).is_some());
    let Some(place) = place else { return writer.message(&Answer::NoSuchJob).await };
    let begun = match begin(guest, &place) {
        Ok(begun) => begun,
        Err(e) => return refuse(&mut writer, format!("the files of the job could not be read: {e}")).await,
    };
    writer.message(&Answer::Ready).await?;
    let Some((_helper, input, output)) = begun else { return writer.message(&FromOutputs::End).await };
    tokio::select! {
        passed = pass_on(order, input, &output, writer.into_inner()) => Ok(passed?),
        // Nothing is said in this direction, so that this is the end of the stream. The helper ends with it.
        _ = reader.read() => Ok(()),
    }
}

/// Starts the helper; nothing if the job has no directory any more.
fn begin(guest: &Guest, place: &Place) -> io::Result<Option<(Helper, Pipe, Pipe)>> {
    let account = guest.account()?;
    let working = place.working(&account);
    if !working.is_dir() {
        return Ok(None);
    }
    let (their_input, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (output, their_output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let mut command = Command::new(&guest.settings.helper);
    command.arg("collect").env_clear().stdin(their_input).stdout(their_output).stderr(Stdio::null());
    run_in(&mut command, &account, &working)?;
    let helper = Helper::start(guest, &mut command)?;
    Ok(Some((helper, Pipe::new(input)?, Pipe::new(output)?)))
}

async fn pass_on<W: AsyncWrite + Unpin>(
    order: &OutputsOrder,
    input: Pipe,
    output: &Pipe,
    mut stream: W,
) -> io::Result<()> {
    let text = serde_json::to_vec(order)?;
    let mut rest = text.as_slice();
    while !rest.is_empty() {
        let length = input.write(rest).await?;
        rest = &rest[length..];
    }
    drop(input);
    let mut buffer = vec![0; MAX_DATA];
    loop {
        match output.read(&mut buffer).await? {
            0 => return stream.flush().await,
            length => stream.write_all(&buffer[..length]).await?,
        }
    }
}
