//! The outputs of jobs as callers see them: of one that has ended those that were kept, of one that has its turn what is in its
//! directory at this moment.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use tarn_model::ids::JobId;
use tarn_model::jobs::{Job, State};
use tarn_store::jobs;

use super::{present, shelf};
use crate::operations::jobs as operations;
use crate::{Caller, Control, Error, Kind, Result};

/// How many outputs a job may have.
pub const MAX_OUTPUTS: usize = 100_000;

/// How many are read from the shelf at a time.
const PAGE: u32 = 1000;

/// A file that a job made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// Its path relative to the job's directory: clean, and with slashes.
    pub path: String,
    /// Its size.
    pub size: u64,
}

/// The files of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The job.
    pub job: Job,
    /// The files, in the order of their paths.
    pub files: Vec<OutputFile>,
    /// Whether the job may still change them.
    pub live: bool,
}

/// Which bytes of a file are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// All from this one on.
    From(u64),
    /// From the first to the second, both included.
    Within(u64, u64),
    /// The last ones.
    Last(u64),
}

/// A file that is being read.
pub struct OpenOutput {
    /// The size of the whole file.
    pub size: u64,
    /// Which bytes of it come.
    pub range: Range<u64>,
    /// Exactly these bytes, or an error at its end.
    pub body: BoxStream<'static, io::Result<Bytes>>,
}

/// The outputs of a job; with `files`, only these, which have to be there.
pub async fn list(control: &Control, caller: &Caller, job: &str, files: &[String]) -> Result<Outputs> {
    let job = control.store().read(|tx| operations::find(tx, caller, job)).await?;
    let (mut found, live) = match &job.state {
        State::Ended(_) => (kept(control, &job.id).await?, false),
        State::Draft | State::Pending => (Vec::new(), true),
        State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => {
            (present::list(control, &job).await?, true)
        }
    };
    if !files.is_empty() {
        let wanted: BTreeSet<&str> = files.iter().map(String::as_str).collect();
        found.retain(|file| wanted.contains(file.path.as_str()));
        let there: BTreeSet<&str> = found.iter().map(|file| file.path.as_str()).collect();
        let missing: Vec<String> = wanted.difference(&there).map(|path| (*path).to_owned()).collect();
        if !missing.is_empty() {
            return Err(no_such(&job, &missing));
        }
    }
    Ok(Outputs { job, files: found, live })
}

/// Opens an output, for whoever has a signature for it.
pub async fn open(control: &Control, job: &JobId, path: &str, range: Option<ByteRange>) -> Result<OpenOutput> {
    let found: Option<Job> = control.store().read(|tx| jobs::get(tx, job)).await.map_err(Error::from)?;
    let job = found.ok_or_else(|| Error::not_found("job", job.as_str()))?;
    let opened = match &job.state {
        _ if !is_clean(path) => None,
        State::Ended(_) => {
            let cut = |size| resolve(range, size).unwrap_or(0..0);
            let opened = shelf::open_output(control, &job.id, path, cut).await?;
            opened.map(|(size, reading)| (size, reading.boxed()))
        }
        State::Draft | State::Pending => None,
        State::Starting | State::Running | State::Stopping(_) | State::Collecting(_) => {
            present::open(control, &job, path, |size| resolve(range, size).unwrap_or(0..0)).await?
        }
    };
    let (size, body) = opened.ok_or_else(|| no_such(&job, &[path.to_owned()]))?;
    let range = resolve(range, size).ok_or_else(|| {
        let message = format!("the file has {size} bytes, and nothing of it lies in the range that was asked for");
        Error::invalid("range_not_satisfiable", message)
    })?;
    Ok(OpenOutput { size, range, body })
}

/// Whether a path may be that of an output: relative, without dots or empty parts, and not too long.
pub(crate) fn is_clean(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= shelf::MAX_PATH_BYTES && !path.contains('\0') && path.split('/').all(part)
}

/// The bytes of a file of this size that are wanted; `None` when there are none such.
fn resolve(range: Option<ByteRange>, size: u64) -> Option<Range<u64>> {
    match range {
        None => Some(0..size),
        Some(ByteRange::From(first)) => (first < size).then_some(first..size),
        Some(ByteRange::Within(first, last)) => {
            (first < size && first <= last).then(|| first..last.saturating_add(1).min(size))
        }
        Some(ByteRange::Last(count)) => (count > 0 && size > 0).then(|| size.saturating_sub(count)..size),
    }
}

/// What was kept of a job that has ended.
async fn kept(control: &Control, job: &JobId) -> Result<Vec<OutputFile>> {
    let mut files: Vec<OutputFile> = Vec::new();
    while files.len() < MAX_OUTPUTS {
        let page = shelf::list_outputs(control, job, files.last().map(|file| file.path.as_str()), PAGE).await?;
        let is_last = (page.len() as u32) < PAGE;
        files.extend(page.into_iter().map(|(path, size)| OutputFile { path, size }));
        if is_last {
            break;
        }
    }
    Ok(files)
}

/// How many missing files are named; of a thousand nobody would read the list.
const NAMED: usize = 10;

fn no_such(job: &Job, paths: &[String]) -> Error {
    let clean = |path: &String| path.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let names: Vec<String> = paths.iter().take(NAMED).map(clean).collect();
    let more = if paths.len() > NAMED { format!(" and {} more", paths.len() - NAMED) } else { String::new() };
    let message =
        format!("job {} has no output {}{more}; pull it without files to see what there is", job.id, names.join(", "));
    Error::new(Kind::NotFound, "no_such_output", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clean_paths_are_outputs() {
        for path in ["a", "a/b.txt", ".hidden", "a..b", "ü/new\nline"] {
            assert!(is_clean(path), "{path:?}");
        }
        for path in ["", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\0b", &"a/".repeat(2000)] {
            assert!(!is_clean(path), "{path:?}");
        }
    }

    #[test]
    fn ranges_lie_within_the_file() {
        assert_eq!(resolve(None, 0), Some(0..0));
        assert_eq!(resolve(Some(ByteRange::From(3)), 10), Some(3..10));
        assert_eq!(resolve(Some(ByteRange::From(10)), 10), None);
        assert_eq!(resolve(Some(ByteRange::Within(2, 4)), 10), Some(2..5));
        assert_eq!(resolve(Some(ByteRange::Within(2, u64::MAX)), 10), Some(2..10));
        assert_eq!(resolve(Some(ByteRange::Within(4, 2)), 10), None);
        assert_eq!(resolve(Some(ByteRange::Last(3)), 10), Some(7..10));
        assert_eq!(resolve(Some(ByteRange::Last(30)), 10), Some(0..10));
        assert_eq!(resolve(Some(ByteRange::Last(0)), 10), None);
    }
}
