//! Running an attempt: its files first, then the commands, and then it is followed.

use std::sync::Arc;

use tarn_link::{Answer, JobOrder, Reader, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::failures::Failure;
use super::follow::follow;
use super::places::{Place, UNPACKED};
use super::registry::Job;
use super::{files, forget, start};
use crate::service::{Guest, refuse};

/// How many commands an attempt may have, and how long they may be altogether.
const MAX_COMMANDS: usize = 10_000;
const MAX_LENGTH: usize = 1 << 20;

/// Runs an attempt unless it is known, and follows it from its first byte.
pub(super) async fn serve<S: Stream>(
    guest: &Arc<Guest>,
    order: JobOrder,
    mut reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let place = match check(guest, &order) {
        Ok(place) => place,
        Err(reason) => return refuse(&mut writer, reason.into()).await,
    };
    let Some(job) = guest.jobs.enter(&order.job) else {
        // Others are forgotten soon.
        writer.message(&Answer::Ready).await?;
        let failure = Failure::passing("the node knows too many jobs already");
        return not_started(&failure, &mut reader, &mut writer).await;
    };
    let Ok(turn) = timeout(forget::MAX_TURN, job.turn.lock()).await else {
        return refuse(&mut writer, "the job is being started or forgotten".into()).await;
    };
    if !guest.jobs.is_known(&order.job, &job) {
        return refuse(&mut writer, "the job was forgotten".into()).await;
    }
    if let Some(attempt) = job.attempt(order.attempt) {
        drop(turn);
        if !attempt.is_kept_from(0) {
            return refuse(&mut writer, "the attempt is known, and its first output is kept no more".into()).await;
        }
        writer.message(&Answer::Ready).await?;
        return follow(&job, (order.attempt, &attempt, 0), reader, writer).await;
    }
    let mut is_answered = false;
    let started = match prepare(guest, &place, &order, &job).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            writer.message(&Answer::SendFiles).await?;
            is_answered = true;
            files::receive(guest, &place, &mut reader).await?
        }
        Err(failure) => Err(failure),
    };
    let started = match started {
        Ok(()) => start::start(guest, &place, &job, &order).await,
        Err(failure) => Err(failure),
    };
    drop(turn);
    if !is_answered {
        writer.message(&Answer::Ready).await?;
    }
    match started {
        Ok(attempt) => follow(&job, (order.attempt, &attempt, 0), reader, writer).await,
        Err(failure) => not_started(&failure, &mut reader, &mut writer).await,
    }
}

/// Says why there will be no attempt.
async fn not_started<S: Stream>(
    failure: &Failure,
    reader: &mut Reader<ReadHalf<S>>,
    writer: &mut Writer<WriteHalf<S>>,
) -> Result<()> {
    writer.message(&failure.said()).await?;
    files::discard(reader).await
}

/// Checks what the engine says, so that nothing odd gets into files.
fn check(guest: &Guest, order: &JobOrder) -> std::result::Result<Place, &'static str> {
    let place = Place::new(&guest.settings.root, &order.job).ok_or("that is no job")?;
    let length: usize = order.commands.iter().map(String::len).sum();
    if order.commands.len() > MAX_COMMANDS || length > MAX_LENGTH {
        return Err("the commands are too many or too long");
    }
    if order.commands.iter().any(|command| command.contains('\0')) {
        return Err("a command has a zero byte in it");
    }
    let is_variable =
        |name: &str, value: &str| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
    if !order.environment.iter().all(|(name, value)| is_variable(name, value)) {
        return Err("an environment variable has a name or a value that it cannot have");
    }
    if order.hosts.iter().any(|host| host.contains('\n')) {
        return Err("a host has a name that it cannot have");
    }
    Ok(place)
}

/// Makes the way free for an attempt; whether the files of the job are wanted.
async fn prepare(guest: &Guest, place: &Place, order: &JobOrder, job: &Job) -> std::result::Result<bool, Failure> {
    let attempts = job.attempts();
    if attempts.iter().any(|(number, _)| *number > order.attempt) {
        return Err(Failure::lasting("a later attempt of the job is known"));
    }
    // The engine has gone on without them, and they share a directory with this one.
    for (number, attempt) in attempts {
        if !forget::end(&attempt).await {
            return Err(Failure::passing("an earlier attempt of the job does not end"));
        }
        attempt.forget();
        job.remove(number);
    }
    start::refuse_at_the_end(guest)?;
    start::make_state(place).map_err(|e| Failure::during("the job could not be written down", &e))?;
    Ok(order.has_files && !place.state().join(UNPACKED).exists())
}
