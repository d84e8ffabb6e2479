//! Runs an attempt: receives its files, starts its commands, and follows it.

use std::sync::Arc;

use tarn_link::{JobOrder, Reader, Reply, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::start;
use crate::jobs::attempts::Failure;
use crate::jobs::attempts::follow::follow_attempt;
use crate::jobs::files::receive;
use crate::jobs::paths::{JobPaths, UNPACKED_MARKER};
use crate::jobs::registry::Job;
use crate::jobs::removal;
use crate::link_service::{Guest, send_refusal};

/// The maximum number of commands of an attempt, and their maximum total length.
const MAX_COMMANDS: usize = 10_000;
const MAX_LENGTH: usize = 1 << 20;

/// Runs an attempt unless it is known, and follows it from its first byte.
pub(in crate::jobs) async fn serve_run<S: Stream>(
    guest: &Arc<Guest>,
    order: JobOrder,
    mut reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let paths = match check_order(guest, &order) {
        Ok(paths) => paths,
        Err(reason) => return send_refusal(&mut writer, reason.into()).await,
    };
    let Some(job) = guest.jobs.find_or_insert(&order.job) else {
        // The engine will forget other jobs soon, so a retry may succeed.
        writer.message(&Reply::Ready).await?;
        let failure = Failure::temporary("the node already knows too many jobs");
        return report_not_started(&failure, &mut reader, &mut writer).await;
    };
    let Ok(guard) = timeout(removal::LOCK_TIMEOUT, job.exclusive.lock()).await else {
        return send_refusal(&mut writer, "the job is being started or forgotten".into()).await;
    };
    if !guest.jobs.is_known(&order.job, &job) {
        return send_refusal(&mut writer, "the job was forgotten".into()).await;
    }
    if let Some(attempt) = job.find_attempt(order.attempt) {
        drop(guard);
        if !attempt.has_log_from(0) {
            return send_refusal(&mut writer, "the attempt is known, and its first output is no longer kept".into())
                .await;
        }
        writer.message(&Reply::Ready).await?;
        return follow_attempt(&job, (order.attempt, &attempt, 0), reader, writer).await;
    }
    let mut is_answered = false;
    let started = match prepare_attempt(guest, &paths, &order, &job).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            writer.message(&Reply::SendFiles).await?;
            is_answered = true;
            receive::receive_files(guest, &paths, &mut reader).await?
        }
        Err(failure) => Err(failure),
    };
    let started = match started {
        Ok(()) => start::start_attempt(guest, &paths, &job, &order).await,
        Err(failure) => Err(failure),
    };
    drop(guard);
    if !is_answered {
        writer.message(&Reply::Ready).await?;
    }
    match started {
        Ok(attempt) => follow_attempt(&job, (order.attempt, &attempt, 0), reader, writer).await,
        Err(failure) => report_not_started(&failure, &mut reader, &mut writer).await,
    }
}

/// Reports why the attempt was not started.
async fn report_not_started<S: Stream>(
    failure: &Failure,
    reader: &mut Reader<ReadHalf<S>>,
    writer: &mut Writer<WriteHalf<S>>,
) -> Result<()> {
    writer.message(&failure.to_message()).await?;
    receive::discard_stream(reader).await
}

/// Checks an order, so that nothing invalid gets into files.
fn check_order(guest: &Guest, order: &JobOrder) -> std::result::Result<JobPaths, &'static str> {
    let paths = JobPaths::new(&guest.settings.root, &order.job).ok_or("that is not a job id")?;
    let length: usize = order.commands.iter().map(String::len).sum();
    if order.commands.len() > MAX_COMMANDS || length > MAX_LENGTH {
        return Err("the commands are too many or too long");
    }
    if order.commands.iter().any(|command| command.contains('\0')) {
        return Err("a command contains a zero byte");
    }
    let is_variable =
        |name: &str, value: &str| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    if !order.environment.iter().all(|(name, value)| is_variable(name, value)) {
        return Err("an environment variable has an invalid name or value");
    }
    if order.hosts.iter().any(|host| host.contains('\n')) {
        return Err("a host has an invalid name");
    }
    Ok(paths)
}

/// Prepares the job for an attempt; returns whether its files are needed.
async fn prepare_attempt(
    guest: &Guest,
    paths: &JobPaths,
    order: &JobOrder,
    job: &Job,
) -> std::result::Result<bool, Failure> {
    let attempts = job.all_attempts();
    if attempts.iter().any(|(number, _)| *number > order.attempt) {
        return Err(Failure::permanent("a later attempt of the job is known"));
    }
    // The engine has given the earlier attempts up, and they share a directory with this one.
    for (number, attempt) in attempts {
        if !removal::kill_attempt(&attempt).await {
            return Err(Failure::temporary("an earlier attempt of the job does not end"));
        }
        attempt.discard();
        job.remove_attempt(number);
    }
    start::refuse_while_stopping(guest)?;
    start::create_state_directory(paths).map_err(|e| Failure::from_io_error("the job could not be saved", &e))?;
    Ok(order.has_files && !paths.state_directory().join(UNPACKED_MARKER).exists())
}
