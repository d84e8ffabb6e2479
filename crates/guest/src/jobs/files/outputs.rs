//! Serves the outputs of a job: a helper finds and reads them as the user, and the guest relays its output.

use std::io;

use tarn_link::frames::MAX_DATA;
use tarn_link::{FromOutputs, OutputsOrder, Reader, Reply, Result, Stream, Writer};
use tokio::io::{AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};

use crate::jobs::helper_process::HelperProcess;
use crate::jobs::paths::JobPaths;
use crate::link_service::{Guest, send_refusal};
use crate::process::Pipe;

/// Serves a request for the files of a job.
pub(in crate::jobs) async fn serve_outputs<S: Stream>(
    guest: &Guest,
    order: &OutputsOrder,
    mut reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let paths = JobPaths::new(&guest.settings.root, &order.job).filter(|_| guest.jobs.find_job(&order.job).is_some());
    let Some(paths) = paths else { return writer.message(&Reply::NoSuchJob).await };
    let started = match start_collect_helper(guest, &paths) {
        Ok(started) => started,
        Err(e) => return send_refusal(&mut writer, format!("the files of the job could not be read: {e}")).await,
    };
    writer.message(&Reply::Ready).await?;
    let Some((_helper, input, output)) = started else { return writer.message(&FromOutputs::End).await };
    tokio::select! {
        passed = relay_helper_output(order, input, &output, writer.into_inner()) => Ok(passed?),
        // The engine sends nothing on this stream, so a read returns only at its end. The helper ends with it.
        _ = reader.read() => Ok(()),
    }
}

/// Starts the helper; `None` if the job has no directory any more.
fn start_collect_helper(guest: &Guest, paths: &JobPaths) -> io::Result<Option<(HelperProcess, Pipe, Pipe)>> {
    let account = guest.account()?;
    let working = paths.working_directory(&account);
    if !working.is_dir() {
        return Ok(None);
    }
    HelperProcess::start_with_pipes(guest, "collect", &account, &working).map(Some)
}

async fn relay_helper_output<W: AsyncWrite + Unpin>(
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
