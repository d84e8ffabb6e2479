//! Where the things of jobs are kept in object storage: the archive of a job's files and the list of them, pieces of its log, and
//! its outputs. The only place that knows under which keys. It must not know what is in them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use tarn_model::ids::JobId;
use tarn_model::objects::{Listed, MAX_KEY_BYTES, Object};
use tarn_objects::files::{self, Sums};
use tarn_objects::find::Which;
use tarn_objects::internal::NotPut;
use tarn_objects::list::{Entry, MAX_PAGE, Query};
use tarn_objects::put::Place;
use tarn_objects::{Error as Failure, Reading, internal};
use tarn_store::Tx;

use crate::{Control, Error, Kind, Result};

/// The bucket of all jobs, in the account of the engine.
const BUCKET: &str = "jobs";

/// How often a read begins again when the object is replaced just then.
const TRIES: usize = 10;

/// How long the path of an output may be: keys are longer than that by the id of the job.
pub(crate) const MAX_PATH_BYTES: usize = MAX_KEY_BYTES - 32;

/// Logs up to this size can be put as part of a larger transaction.
pub(crate) const SMALL_LOG: usize = files::INLINE_MAX;

/// The code of a disk without room.
pub(crate) const FULL: &str = "storage_full";

/// Something on its way to the shelf. Dropped before it is finished, it leaves nothing.
pub(crate) struct Intake {
    control: Control,
    place: Place,
    intake: files::Intake,
}

impl Intake {
    /// Takes the next piece.
    pub(crate) async fn push(&mut self, piece: Bytes) -> Result<()> {
        self.intake.push(piece).await.map_err(|error| failed(error.into()))
    }

    /// Puts what came onto the shelf, in the place of what was there. It is on disk then.
    pub(crate) async fn finish(self) -> Result<()> {
        self.finish_with(|_| Ok(())).await
    }

    /// The same, in one transaction with something else: both happen or neither.
    pub(crate) async fn finish_with<T: Send + 'static>(
        self,
        also: impl Fn(&mut Tx<'_>) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let received = self.intake.finish().await.map_err(|error| failed(error.into()))?;
        match self.control.objects().put_with(&self.place, received, also).await {
            Ok(value) => Ok(value),
            Err(NotPut::Object(error)) => Err(failed(error)),
            Err(NotPut::Other(error)) => Err(error),
        }
    }
}

/// Begins to take in the archive of a job's files, which will have so many bytes if that is known.
pub(crate) async fn put_files(control: &Control, job: &JobId, declared: Option<u64>) -> Result<Intake> {
    intake(control, files_key(job), declared).await
}

/// The archive of a job's files and its size.
pub(crate) async fn read_files(control: &Control, job: &JobId) -> Result<(u64, Reading)> {
    open(control, &files_key(job), |size| 0..size).await?.ok_or_else(|| missing(job, "the archive of its files"))
}

/// Forgets the archive of a job's files.
pub(crate) async fn remove_files(control: &Control, job: &JobId) -> Result<()> {
    remove(control, &files_key(job)).await
}

/// Begins to take in the list of the files that a draft waits for.
pub(crate) async fn put_list(control: &Control, job: &JobId, size: u64) -> Result<Intake> {
    intake(control, list_key(job), Some(size)).await
}

/// The list of the files that a draft waits for and its size, if there is one.
pub(crate) async fn read_list(control: &Control, job: &JobId) -> Result<Option<(u64, Reading)>> {
    open(control, &list_key(job), |size| 0..size).await
}

/// Forgets the list of the files that a draft waits for.
pub(crate) async fn remove_list(control: &Control, job: &JobId) -> Result<()> {
    remove(control, &list_key(job)).await
}

/// Keeps the piece of a log that begins at `start`, in one transaction with something else.
pub(crate) async fn put_log<T: Send + 'static>(
    control: &Control,
    job: &JobId,
    start: u64,
    data: Bytes,
    also: impl Fn(&mut Tx<'_>) -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    let mut intake = intake(control, log_key(job, start), Some(data.len() as u64)).await?;
    intake.push(data).await?;
    intake.finish_with(also).await
}

/// Keeps the piece of a log that begins at `start` and has at most [`SMALL_LOG`] bytes, as part of a larger transaction. The
/// shelf has to be [`ready`].
pub(crate) fn put_small_log(tx: &mut Tx<'_>, job: &JobId, start: u64, data: &[u8]) -> Result<()> {
    internal::put_small(tx, BUCKET, &log_key(job, start), data).map_err(failed)
}

/// Bytes of the piece of a log that begins at `start`, counted from there.
pub(crate) async fn read_log(control: &Control, job: &JobId, start: u64, range: Range<u64>) -> Result<Bytes> {
    let cut = |size: u64| range.start.min(size)..range.end.min(size);
    let opened = open(control, &log_key(job, start), cut).await?;
    let (_, mut reading) = opened.ok_or_else(|| missing(job, "a piece of its log"))?;
    let mut data = BytesMut::with_capacity(usize::try_from(reading.remaining()).unwrap_or(0));
    while let Some(piece) = reading.next().await {
        data.extend_from_slice(&piece.map_err(|error| failed(error.into()))?);
    }
    Ok(data.freeze())
}

/// Begins to take in an output.
pub(crate) async fn put_output(control: &Control, job: &JobId, path: &str, declared: Option<u64>) -> Result<Intake> {
    if path.len() > MAX_PATH_BYTES {
        let message = format!("a path has {} bytes, and {MAX_PATH_BYTES} are allowed", path.len());
        return Err(Error::invalid("path_too_long", message));
    }
    intake(control, output_key(job, path), declared).await
}

/// The outputs of a job after this path, in the order of their paths, with their sizes.
pub(crate) async fn list_outputs(
    control: &Control,
    job: &JobId,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<(String, u64)>> {
    let prefix = output_key(job, "");
    let after = after.map(|after| output_key(job, after));
    let entries = list(control, Query { prefix: prefix.clone(), delimiter: None, after, limit }).await?;
    let output = |entry: Entry<Listed>| match entry {
        Entry::Item(listed) => Some((listed.key.strip_prefix(&prefix)?.to_owned(), listed.object?.0)),
        Entry::Prefix(_) => None,
    };
    Ok(entries.into_iter().filter_map(output).collect())
}

/// An output, if there is one of this path: its size, and the bytes of the range that `range` makes of the size.
pub(crate) async fn open_output(
    control: &Control,
    job: &JobId,
    path: &str,
    range: impl Fn(u64) -> Range<u64>,
) -> Result<Option<(u64, Reading)>> {
    match path.len() {
        1..=MAX_PATH_BYTES => open(control, &output_key(job, path), range).await,
        _ => Ok(None),
    }
}

/// Forgets an output.
pub(crate) async fn remove_output(control: &Control, job: &JobId, path: &str) -> Result<()> {
    remove(control, &output_key(job, path)).await
}

/// Forgets everything of a job.
pub(crate) async fn remove_all(control: &Control, job: &JobId) -> Result<()> {
    match control.objects().remove_internal(BUCKET, &format!("{job}/")).await {
        Ok(()) | Err(Failure::NoSuchBucket) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Jobs after this one of which something is here, in the order of their ids, at most a thousand at a time.
pub(crate) async fn jobs_with_objects(control: &Control, after: Option<&JobId>) -> Result<Vec<JobId>> {
    let after = after.map(|job| format!("{job}/"));
    let query = Query { prefix: String::new(), delimiter: Some("/".to_owned()), after, limit: MAX_PAGE };
    let entries = list(control, query).await?;
    let job = |entry: Entry<Listed>| match entry {
        Entry::Prefix(prefix) => prefix.strip_suffix('/')?.parse().ok(),
        Entry::Item(_) => None,
    };
    Ok(entries.into_iter().filter_map(job).collect())
}

/// Makes the shelf, unless it is there. What is put is preceded by this, also by whoever puts it as part of a transaction; to
/// everything else a shelf that is not there is an empty one.
pub(crate) async fn ready(control: &Control) -> Result<()> {
    let make = || async { control.objects().ensure_internal(BUCKET).await.map_err(failed) };
    control.job_shelf().get_or_try_init(make).await.map(drop)
}

async fn intake(control: &Control, key: String, declared: Option<u64>) -> Result<Intake> {
    ready(control).await?;
    let place = Place { org: internal::account(), bucket: BUCKET.to_owned(), key };
    let intake = control.objects().intake(&place, declared, Sums::default()).await.map_err(failed)?;
    Ok(Intake { control: control.clone(), place, intake })
}

async fn open(control: &Control, key: &str, range: impl Fn(u64) -> Range<u64>) -> Result<Option<(u64, Reading)>> {
    let (objects, org) = (control.objects(), internal::account());
    let mut tries = 0;
    loop {
        tries += 1;
        let object: Object = match objects.find(&org, BUCKET, key, &Which::Current).await {
            Ok(object) => object,
            Err(Failure::NoSuchKey { .. } | Failure::NoSuchBucket) => return Ok(None),
            Err(other) => return Err(failed(other)),
        };
        match objects.read(&object, range(object.size)).await {
            Ok(reading) => return Ok(Some((object.size, reading))),
            Err(Failure::NoSuchVersion) if tries < TRIES => {}
            Err(other) => return Err(failed(other)),
        }
    }
}

async fn list(control: &Control, query: Query) -> Result<Vec<Entry<Listed>>> {
    match control.objects().list(&internal::account(), BUCKET, &query).await {
        Ok(page) => Ok(page.entries),
        Err(Failure::NoSuchBucket) => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

async fn remove(control: &Control, key: &str) -> Result<()> {
    match control.objects().delete(&internal::account(), BUCKET, key).await {
        Ok(_) | Err(Failure::NoSuchBucket) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn files_key(job: &JobId) -> String {
    format!("{job}/files")
}

fn list_key(job: &JobId) -> String {
    format!("{job}/list")
}

/// Twenty digits, so that the pieces lie in their order.
fn log_key(job: &JobId, start: u64) -> String {
    format!("{job}/log/{start:020}")
}

fn output_key(job: &JobId, path: &str) -> String {
    format!("{job}/outputs/{path}")
}

/// What object storage could not do, as whoever wanted something of a job sees it.
pub(crate) fn failed(error: Failure) -> Error {
    match error {
        Failure::Full => {
            let message = "the engine's disk is full; try again later, or ask its operator to make room";
            Error { cause: Some(Box::new(error)), ..Error::new(Kind::Unavailable, FULL, message) }
        }
        Failure::Store(error) => error.into(),
        other => Error::internal(other),
    }
}

fn missing(job: &JobId, what: &str) -> Error {
    Error::internal(std::io::Error::other(format!("job {job} has lost {what}")))
}
