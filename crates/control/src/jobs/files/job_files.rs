//! The objects of jobs in object storage: the archive of a job's files and their list, pieces of its log, and its
//! outputs. Only this module knows their keys. It must not know their content.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use tarn_model::ids::JobId;
use tarn_model::objects::{ListedObject, MAX_KEY_BYTES, Object};
use tarn_objects::files::{self, Sums};
use tarn_objects::find::VersionSelector;
use tarn_objects::internal::PutError;
use tarn_objects::list::{Entry, MAX_PAGE, Query};
use tarn_objects::put::ObjectLocation;
use tarn_objects::{Error as Failure, ObjectReader, internal};
use tarn_store::Tx;

use crate::{Control, Error, Kind, Result};

/// The bucket of all jobs, in the account of the engine.
const BUCKET: &str = "jobs";

/// How often a read is repeated when the object is replaced at the same time.
const MAX_OPEN_TRIES: usize = 10;

/// How long the path of an output may be: the key adds the id of the job.
pub(crate) const MAX_PATH_BYTES: usize = MAX_KEY_BYTES - 32;

/// Logs up to this size can be stored as part of a larger transaction.
pub(crate) const SMALL_LOG: usize = files::INLINE_MAX;

/// The error code of a full disk.
pub(crate) const STORAGE_FULL: &str = "storage_full";

/// An object that is being received. It leaves nothing if it is dropped before it is finished.
pub(crate) struct FileIntake {
    control: Control,
    location: ObjectLocation,
    intake: files::Intake,
}

impl FileIntake {
    /// Receives the next piece.
    pub(crate) async fn push(&mut self, piece: Bytes) -> Result<()> {
        self.intake.push(piece).await.map_err(|error| storage_error(error.into()))
    }

    /// Stores the object in one transaction with other work.
    pub(crate) async fn finish_with<T: Send + 'static>(
        self,
        also: impl Fn(&mut Tx<'_>) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let received = self.intake.finish().await.map_err(|error| storage_error(error.into()))?;
        match self.control.objects().put_with(&self.location, received, also).await {
            Ok(value) => Ok(value),
            Err(PutError::Object(error)) => Err(storage_error(error)),
            Err(PutError::Other(error)) => Err(error),
        }
    }
}

/// Begins to receive the archive of a job's files; `declared` is its size, if known.
pub(crate) async fn put_files(control: &Control, job: &JobId, declared: Option<u64>) -> Result<FileIntake> {
    begin_intake(control, archive_key(job), declared).await
}

/// Reads the archive of a job's files. Returns its size, too.
pub(crate) async fn read_files(control: &Control, job: &JobId) -> Result<(u64, ObjectReader)> {
    open_object(control, &archive_key(job), |size| 0..size)
        .await?
        .ok_or_else(|| missing_object(job, "the archive of its files"))
}

/// Removes the archive of a job's files.
pub(crate) async fn remove_files(control: &Control, job: &JobId) -> Result<()> {
    remove_object(control, &archive_key(job)).await
}

/// Begins to receive the list of the files that a draft waits for.
pub(crate) async fn put_list(control: &Control, job: &JobId, size: u64) -> Result<FileIntake> {
    begin_intake(control, file_list_key(job), Some(size)).await
}

/// Reads the list of the files that a draft waits for, if there is one. Returns its size, too.
pub(crate) async fn read_list(control: &Control, job: &JobId) -> Result<Option<(u64, ObjectReader)>> {
    open_object(control, &file_list_key(job), |size| 0..size).await
}

/// Removes the list of the files that a draft waits for.
pub(crate) async fn remove_list(control: &Control, job: &JobId) -> Result<()> {
    remove_object(control, &file_list_key(job)).await
}

/// Stores the piece of a log that begins at `start`, in one transaction with other work.
pub(crate) async fn put_log<T: Send + 'static>(
    control: &Control,
    job: &JobId,
    start: u64,
    data: Bytes,
    also: impl Fn(&mut Tx<'_>) -> Result<T> + Send + Sync + 'static,
) -> Result<T> {
    let mut intake = begin_intake(control, log_piece_key(job, start), Some(data.len() as u64)).await?;
    intake.push(data).await?;
    intake.finish_with(also).await
}

/// Stores the piece of a log that begins at `start` and has at most [`SMALL_LOG`] bytes, as part of a larger
/// transaction. [`ensure_bucket`] must have been called.
pub(crate) fn put_small_log(tx: &mut Tx<'_>, job: &JobId, start: u64, data: &[u8]) -> Result<()> {
    internal::put_small(tx, BUCKET, &log_piece_key(job, start), data).map_err(storage_error)
}

/// Reads a range of the piece of a log that begins at `start`; the range is relative to it.
pub(crate) async fn read_log(control: &Control, job: &JobId, start: u64, range: Range<u64>) -> Result<Bytes> {
    let cut = |size: u64| range.start.min(size)..range.end.min(size);
    let opened = open_object(control, &log_piece_key(job, start), cut).await?;
    let (_, mut reading) = opened.ok_or_else(|| missing_object(job, "a piece of its log"))?;
    let mut data = BytesMut::with_capacity(usize::try_from(reading.remaining()).unwrap_or(0));
    while let Some(piece) = reading.next().await {
        data.extend_from_slice(&piece.map_err(|error| storage_error(error.into()))?);
    }
    Ok(data.freeze())
}

/// Begins to receive an output.
pub(crate) async fn put_output(
    control: &Control,
    job: &JobId,
    path: &str,
    declared: Option<u64>,
) -> Result<FileIntake> {
    if path.len() > MAX_PATH_BYTES {
        let message = format!("a path has {} bytes, and at most {MAX_PATH_BYTES} are allowed", path.len());
        return Err(Error::invalid("path_too_long", message));
    }
    begin_intake(control, output_key(job, path), declared).await
}

/// Lists the outputs of a job after a path, with their sizes, ordered by path.
pub(crate) async fn list_outputs(
    control: &Control,
    job: &JobId,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<(String, u64)>> {
    let prefix = output_key(job, "");
    let after = after.map(|after| output_key(job, after));
    let entries = list_objects(control, Query { prefix: prefix.clone(), delimiter: None, after, limit }).await?;
    let output = |entry: Entry<ListedObject>| match entry {
        Entry::Item(listed) => Some((listed.key.strip_prefix(&prefix)?.to_owned(), listed.object?.0)),
        Entry::Prefix(_) => None,
    };
    Ok(entries.into_iter().filter_map(output).collect())
}

/// Opens an output, if there is one. Returns its size, and the bytes of the range that `range` computes from the size.
pub(crate) async fn open_output(
    control: &Control,
    job: &JobId,
    path: &str,
    range: impl Fn(u64) -> Range<u64>,
) -> Result<Option<(u64, ObjectReader)>> {
    match path.len() {
        1..=MAX_PATH_BYTES => open_object(control, &output_key(job, path), range).await,
        _ => Ok(None),
    }
}

/// Returns the size of a stored output, or 0 if there is none.
pub(crate) async fn output_size(control: &Control, job: &JobId, path: &str) -> Result<u64> {
    let key = output_key(job, path);
    match control.objects().find(&internal::account(), BUCKET, &key, &VersionSelector::Current).await {
        Ok(object) => Ok(object.size),
        Err(Failure::NoSuchKey | Failure::KeyDeleted { .. } | Failure::NoSuchBucket) => Ok(0),
        Err(other) => Err(storage_error(other)),
    }
}

/// Removes an output.
pub(crate) async fn remove_output(control: &Control, job: &JobId, path: &str) -> Result<()> {
    remove_object(control, &output_key(job, path)).await
}

/// Removes all objects of a job.
pub(crate) async fn remove_all(control: &Control, job: &JobId) -> Result<()> {
    match control.objects().remove_internal(BUCKET, &format!("{job}/")).await {
        Ok(()) | Err(Failure::NoSuchBucket) => Ok(()),
        Err(error) => Err(storage_error(error)),
    }
}

/// Lists the jobs after a given one that have objects, ordered by id, at most a thousand at a time.
pub(crate) async fn jobs_with_objects(control: &Control, after: Option<&JobId>) -> Result<Vec<JobId>> {
    let after = after.map(|job| format!("{job}/"));
    let query = Query { prefix: String::new(), delimiter: Some("/".to_owned()), after, limit: MAX_PAGE };
    let entries = list_objects(control, query).await?;
    let job = |entry: Entry<ListedObject>| match entry {
        Entry::Prefix(prefix) => prefix.strip_suffix('/')?.parse().ok(),
        Entry::Item(_) => None,
    };
    Ok(entries.into_iter().filter_map(job).collect())
}

/// Creates the bucket, unless it exists. Must precede every write, also one that is part of a larger transaction. All
/// other operations treat a missing bucket as an empty one.
pub(crate) async fn ensure_bucket(control: &Control) -> Result<()> {
    let make = || async { control.objects().ensure_internal(BUCKET).await.map_err(storage_error) };
    control.memory.job_bucket.get_or_try_init(make).await.map(drop)
}

async fn begin_intake(control: &Control, key: String, declared: Option<u64>) -> Result<FileIntake> {
    ensure_bucket(control).await?;
    let location = ObjectLocation { org: internal::account(), bucket: BUCKET.to_owned(), key };
    let intake = control.objects().intake(&location, declared, Sums::default()).await.map_err(storage_error)?;
    Ok(FileIntake { control: control.clone(), location, intake })
}

async fn open_object(
    control: &Control,
    key: &str,
    range: impl Fn(u64) -> Range<u64>,
) -> Result<Option<(u64, ObjectReader)>> {
    let (objects, org) = (control.objects(), internal::account());
    let mut tries = 0;
    loop {
        tries += 1;
        let object: Object = match objects.find(&org, BUCKET, key, &VersionSelector::Current).await {
            Ok(object) => object,
            Err(Failure::NoSuchKey | Failure::KeyDeleted { .. } | Failure::NoSuchBucket) => return Ok(None),
            Err(other) => return Err(storage_error(other)),
        };
        match objects.read(&object, range(object.size)).await {
            Ok(reading) => return Ok(Some((object.size, reading))),
            Err(Failure::NoSuchVersion) if tries < MAX_OPEN_TRIES => {}
            Err(other) => return Err(storage_error(other)),
        }
    }
}

async fn list_objects(control: &Control, query: Query) -> Result<Vec<Entry<ListedObject>>> {
    match control.objects().list(&internal::account(), BUCKET, &query).await {
        Ok(page) => Ok(page.entries),
        Err(Failure::NoSuchBucket) => Ok(Vec::new()),
        Err(error) => Err(storage_error(error)),
    }
}

async fn remove_object(control: &Control, key: &str) -> Result<()> {
    match control.objects().delete(&internal::account(), BUCKET, key).await {
        Ok(_) | Err(Failure::NoSuchBucket) => Ok(()),
        Err(error) => Err(storage_error(error)),
    }
}

fn archive_key(job: &JobId) -> String {
    format!("{job}/files")
}

fn file_list_key(job: &JobId) -> String {
    format!("{job}/list")
}

/// Twenty digits, so that the keys sort by offset.
fn log_piece_key(job: &JobId, start: u64) -> String {
    format!("{job}/log/{start:020}")
}

fn output_key(job: &JobId, path: &str) -> String {
    format!("{job}/outputs/{path}")
}

/// Converts an error of object storage into one for callers.
pub(crate) fn storage_error(error: Failure) -> Error {
    match error {
        Failure::Full => {
            let message = "the engine's disk is full; try again later, or ask its operator to make room";
            Error { cause: Some(Box::new(error)), ..Error::new(Kind::Unavailable, STORAGE_FULL, message) }
        }
        Failure::Store(error) => error.into(),
        other => Error::internal(other),
    }
}

fn missing_object(job: &JobId, what: &str) -> Error {
    Error::internal(std::io::Error::other(format!("job {job} has lost {what}")))
}
