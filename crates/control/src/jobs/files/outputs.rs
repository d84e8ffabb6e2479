//! The outputs of jobs as callers see them: the stored outputs of a job that has ended, and the current content of the
//! directory of a job that runs.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tarn_model::ids::JobId;
use tarn_model::jobs::{Job, State};
use tarn_store::jobs;

use super::{job_files, running_outputs};
use crate::operations::jobs as operations;
use crate::{Caller, Control, Error, Kind, Result};

/// How many outputs a job may have.
pub const MAX_OUTPUTS: usize = 100_000;

/// How many outputs are listed at a time.
const PAGE: u32 = 1000;

/// A file that a job has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path relative to the job's directory: clean, and with slashes.
    pub path: String,
    pub size: u64,
}

/// The outputs of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    pub job: Job,
    /// Ordered by path.
    pub files: Vec<OutputFile>,
    /// Whether the job may still change them.
    pub live: bool,
}

/// The requested bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// All bytes from this offset on.
    From(u64),
    /// From the first offset to the second, both included.
    Within(u64, u64),
    /// The last bytes.
    Last(u64),
}

/// A file that is being read.
pub struct OpenOutput {
    /// The size of the whole file.
    pub size: u64,
    /// The bytes that `body` returns.
    pub range: Range<u64>,
    /// Exactly these bytes, or an error at the end.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// Lists the outputs of a job. With `files`, lists only these, and all of them must exist.
pub async fn list(control: &Control, caller: &Caller, job: &str, files: &[String]) -> Result<Outputs> {
    let job = control.store().read(|tx| operations::find_job(tx, caller, job)).await?;
    let (mut found, live) = match &job.state {
        State::Ended(_) => (list_kept(control, &job.id).await?, false),
        State::Draft | State::Pending => (Vec::new(), true),
        State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => {
            (running_outputs::list_running(control, &job).await?, true)
        }
    };
    if !files.is_empty() {
        let wanted: BTreeSet<&str> = files.iter().map(String::as_str).collect();
        found.retain(|file| wanted.contains(file.path.as_str()));
        let there: BTreeSet<&str> = found.iter().map(|file| file.path.as_str()).collect();
        let missing: Vec<String> = wanted.difference(&there).map(|path| (*path).to_owned()).collect();
        if !missing.is_empty() {
            return Err(no_such_output(&job, &missing));
        }
    }
    Ok(Outputs { job, files: found, live })
}

/// Opens an output, for a caller with a signed URL. The body breaks off when the access of the caller ends.
pub async fn open(
    control: &Control,
    caller: &Caller,
    job: &JobId,
    path: &str,
    range: Option<ByteRange>,
) -> Result<OpenOutput> {
    let held = control.hold_access(caller);
    let found: Option<Job> = control.store().read(|tx| jobs::get(tx, job)).await.map_err(Error::from)?;
    let job = found.ok_or_else(|| Error::not_found("job", job.as_str()))?;
    let opened = match &job.state {
        _ if !is_clean_path(path) => None,
        State::Ended(_) => {
            let cut = |size| resolve_range(range, size).unwrap_or(0..0);
            let opened = job_files::open_output(control, &job.id, path, cut).await?;
            opened.map(|(size, reading)| (size, reading.boxed()))
        }
        State::Draft | State::Pending => None,
        State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => {
            running_outputs::open_running(control, &job, path, |size| resolve_range(range, size).unwrap_or(0..0))
                .await?
        }
    };
    let (size, body) = opened.ok_or_else(|| no_such_output(&job, &[path.to_owned()]))?;
    let range = resolve_range(range, size).ok_or_else(|| {
        let message = format!("the file has {size} bytes, and the requested range contains none of them");
        Error::invalid("range_not_satisfiable", message)
    })?;
    Ok(OpenOutput { size, range, body: held.guard_body(body) })
}

/// Returns whether a path may be that of an output: relative, without dot segments or empty segments, and not too long.
pub(crate) fn is_clean_path(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= job_files::MAX_PATH_BYTES && !path.contains('\0') && path.split('/').all(part)
}

/// Returns the requested bytes of a file of this size; `None` if there are none.
fn resolve_range(range: Option<ByteRange>, size: u64) -> Option<Range<u64>> {
    match range {
        None => Some(0..size),
        Some(ByteRange::From(first)) => (first < size).then_some(first..size),
        Some(ByteRange::Within(first, last)) => {
            (first < size && first <= last).then(|| first..last.saturating_add(1).min(size))
        }
        Some(ByteRange::Last(count)) => (count > 0 && size > 0).then(|| size.saturating_sub(count)..size),
    }
}

/// Lists the stored outputs of a job that has ended.
async fn list_kept(control: &Control, job: &JobId) -> Result<Vec<OutputFile>> {
    let mut files: Vec<OutputFile> = Vec::new();
    while files.len() < MAX_OUTPUTS {
        let page = job_files::list_outputs(control, job, files.last().map(|file| file.path.as_str()), PAGE).await?;
        let is_last = (page.len() as u32) < PAGE;
        files.extend(page.into_iter().map(|(path, size)| OutputFile { path, size }));
        if is_last {
            break;
        }
    }
    Ok(files)
}

/// How many missing files an error names.
const MAX_NAMED_MISSING: usize = 10;

fn no_such_output(job: &Job, paths: &[String]) -> Error {
    let names: Vec<_> = paths.iter().take(MAX_NAMED_MISSING).map(|path| tarn_base::plain(path, 200)).collect();
    let more = if paths.len() > MAX_NAMED_MISSING {
        format!(" and {} more", paths.len() - MAX_NAMED_MISSING)
    } else {
        String::new()
    };
    let message =
        format!("job {} has no output {}{more}; pull it without files to list its outputs", job.id, names.join(", "));
    Error::new(Kind::NotFound, "no_such_output", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only clean paths are outputs.
    #[test]
    fn outputs_have_clean_paths() {
        for path in ["a", "a/b.txt", ".hidden", "a..b", "ü/new\nline"] {
            assert!(is_clean_path(path), "{path:?}");
        }
        for path in ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\0b", &"a/".repeat(2000)] {
            assert!(!is_clean_path(path), "{path:?}");
        }
    }

    /// Ranges lie within the file.
    #[test]
    fn ranges_lie_within_file() {
        assert_eq!(resolve_range(None, 0), Some(0..0));
        assert_eq!(resolve_range(Some(ByteRange::From(3)), 10), Some(3..10));
        assert_eq!(resolve_range(Some(ByteRange::From(10)), 10), None);
        assert_eq!(resolve_range(Some(ByteRange::Within(2, 4)), 10), Some(2..5));
        assert_eq!(resolve_range(Some(ByteRange::Within(2, u64::MAX)), 10), Some(2..10));
        assert_eq!(resolve_range(Some(ByteRange::Within(4, 2)), 10), None);
        assert_eq!(resolve_range(Some(ByteRange::Last(3)), 10), Some(7..10));
        assert_eq!(resolve_range(Some(ByteRange::Last(30)), 10), Some(0..10));
        assert_eq!(resolve_range(Some(ByteRange::Last(0)), 10), None);
    }
}
