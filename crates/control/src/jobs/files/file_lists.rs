//! Lists of the files of jobs that are being pushed. Each is kept while its draft waits for the files, so that every replica can
//! give it out, as often as it is asked for. What stands in a list is not known here.

use std::io;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tarn_model::ids::JobId;
use tarn_model::jobs::State;
use tarn_store::{Tx, jobs};

use super::shelf;
use crate::{Control, Error, Result};

/// How much is put at a time.
const PIECE: usize = 1 << 20;

/// A list that is being read.
pub struct OpenList {
    /// Its size.
    pub size: u64,
    /// Exactly so many bytes, or an error at its end.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// Keeps the list of a draft, in the place of an earlier one.
pub async fn keep(control: &Control, job: &JobId, mut list: Bytes) -> Result<()> {
    let mut intake = shelf::put_list(control, job, list.len() as u64).await?;
    while !list.is_empty() {
        intake.push(list.split_to(list.len().min(PIECE))).await?;
    }
    let of = job.clone();
    intake.finish_with(move |tx| waiting(tx, &of)).await
}

/// Opens the list of a draft, for whoever has a signature for it.
pub async fn open(control: &Control, job: &JobId) -> Result<OpenList> {
    control.store().read(|tx| waiting(tx, job)).await?;
    let (size, reading) = shelf::read_list(control, job).await?.ok_or_else(|| gone(job))?;
    Ok(OpenList { size, body: reading.boxed() })
}

/// Forgets a list that is not needed any more. One that is not forgotten here goes with its job.
pub async fn forget(control: &Control, job: &JobId) -> Result<()> {
    shelf::remove_list(control, job).await
}

/// Refuses what is no draft any more.
fn waiting(tx: &mut Tx<'_>, job: &JobId) -> Result<()> {
    match jobs::get(tx, job)? {
        Some(found) if found.state == State::Draft => Ok(()),
        Some(_) | None => Err(gone(job)),
    }
}

fn gone(job: &JobId) -> Error {
    Error::not_found("the list of the files of job", job.as_str())
}
