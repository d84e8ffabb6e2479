//! Lists of the files of jobs that are being pushed. A list is stored while its draft waits for the files, so that
//! every replica can serve it. The content of a list is not known here.

use std::io;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tarn_model::ids::JobId;
use tarn_model::jobs::State;
use tarn_store::{Tx, jobs};

use super::job_files;
use super::job_space::{self, Reservation};
use crate::{Caller, Control, Error, Result};

/// How many bytes are stored at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A list that is being read.
pub struct OpenList {
    pub size: u64,
    /// Exactly `size` bytes, or an error at the end.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// Stores the list of a draft, and replaces an earlier one.
pub async fn keep(control: &Control, caller: &Caller, job: &JobId, mut list: Bytes) -> Result<()> {
    let size = list.len() as u64;
    let _space = Reservation::new(control, job, Some(size), 0).await?;
    let mut intake = job_files::put_list(control, job, list.len() as u64).await?;
    while !list.is_empty() {
        intake.push(list.split_to(list.len().min(PIECE_BYTES))).await?;
    }
    let (owner, caller, id) = (control.clone(), caller.clone(), job.clone());
    let stored = intake.finish_with(move |tx| {
        caller.must_still_hold(tx)?;
        require_draft(tx, &id)?;
        job_space::require_room(tx, &owner, &id, size)
    });
    stored.await
}

/// Opens the list of a draft, for a caller with a signed URL.
pub async fn open(control: &Control, caller: &Caller, job: &JobId) -> Result<OpenList> {
    let held = control.hold_access(caller);
    control.store().read(|tx| require_draft(tx, job)).await?;
    let (size, reading) = job_files::read_list(control, job).await?.ok_or_else(|| list_gone(job))?;
    Ok(OpenList { size, body: held.guard_body(reading.boxed()) })
}

/// Removes a list that is not needed any more. A list that is not removed here is removed with its job.
pub async fn forget(control: &Control, job: &JobId) -> Result<()> {
    job_files::remove_list(control, job).await
}

/// Refuses a job that is not a draft any more.
fn require_draft(tx: &mut Tx<'_>, job: &JobId) -> Result<()> {
    match jobs::get(tx, job)? {
        Some(found) if found.state == State::Draft => Ok(()),
        Some(_) | None => Err(list_gone(job)),
    }
}

fn list_gone(job: &JobId) -> Error {
    Error::not_found("the list of the files of job", job.as_str())
}
