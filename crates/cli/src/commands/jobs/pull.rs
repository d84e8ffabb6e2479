//! `tarn job pull`: fetches the outputs of a job into a directory.

use std::fs::File;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::pack::format_size;
use crate::commands::Context;
use crate::commands::display;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::{self, sanitize_line};
use crate::terminal::progress::Progress;
use crate::transport::transfers::Download;

#[derive(Args, Debug)]
pub struct Pull {
    /// The job ID, or a name (the newest job with that name)
    job: String,
    /// Fetch only these files, named as --dry-run lists them
    #[arg(long, value_name = "PATH", num_args = 1..)]
    files: Vec<String>,
    /// List the outputs without fetching them
    #[arg(long)]
    dry_run: bool,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    /// The directory for the files
    #[arg(long, value_name = "PATH", default_value = ".")]
    dir: PathBuf,
    /// Ignored; the stock client has this option
    #[arg(short = 'i', long, value_name = "PATH", hide = true)]
    private_key: Option<PathBuf>,
}

/// The number of files fetched and left.
#[derive(Default)]
pub(super) struct FetchSummary {
    count: usize,
    bytes: u64,
    /// The number of files that already existed.
    left: usize,
}

pub(crate) async fn pull_outputs(ctx: &Context<'_>, pull: Pull) -> Result<()> {
    let mut query = vec![("dry_run", pull.dry_run.to_string())];
    query.extend(pull.files.iter().map(|file| ("files", file.clone())));
    let job = super::resolve_job_id(ctx, &pull.job).await?;
    let body = ctx.api.get(&format!("/job/pull/{}", paths::encode_segment(&job)?), &query).await?;
    if pull.dry_run {
        return display::print_body(ctx, &body, render_output_list);
    }
    let directory = paths::resolve_path(ctx.environment, &pull.dir);
    let fetched = fetch_outputs(ctx, &body, &directory, pull.force).await?;
    display::print_body(ctx, &body, |body| match fetched.count + fetched.left {
        0 => output::message_of(body),
        _ => fetched.describe(&directory),
    })
}

impl FetchSummary {
    /// The summary as a sentence.
    pub(super) fn describe(&self, directory: &Path) -> String {
        let files = |count| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
        let mut summary =
            format!("Fetched {}, {}, to {}.", files(self.count), format_size(self.bytes), directory.display());
        if self.left > 0 {
            let here = if self.left == 1 { "was" } else { "were" };
            summary
                .push_str(&format!(" {} already existed and {here} kept; overwrite with --force.", files(self.left)));
        }
        summary
    }
}

fn render_output_list(body: &Value) -> String {
    let names: Vec<String> =
        body["download_map"].as_object().into_iter().flatten().map(|(path, _)| sanitize_line(path)).collect();
    if names.is_empty() { output::message_of(body) } else { names.join("\n") }
}

/// Fetches all files that the response names.
pub(super) async fn fetch_outputs(
    ctx: &Context<'_>,
    body: &Value,
    directory: &Path,
    force: bool,
) -> Result<FetchSummary> {
    let progress = Progress::new(ctx);
    let mut fetched = FetchSummary::default();
    for (path, url) in body["download_map"].as_object().into_iter().flatten() {
        let target = directory.join(check_output_path(path)?);
        let url = url.as_str().ok_or_else(|| Failure::new(format!("the engine sent no URL for {path:?}")))?;
        if !force && target.symlink_metadata().is_ok() {
            fetched.left += 1;
            continue;
        }
        progress.set_message(&format!("Fetching {path}"));
        let bytes = tokio::select! {
            biased;
            () = ctx.interrupts.pressed() => {
                return Err(Failure::interrupted("interrupted; not all files were fetched, pull again"));
            }
            bytes = fetch_output(ctx, url, directory, &target, &progress) => bytes?,
        };
        fetched.bytes += bytes;
        fetched.count += 1;
    }
    Ok(fetched)
}

/// Refuses a path that leads out of the directory.
fn check_output_path(path: &str) -> Result<&Path> {
    let is_clean = !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    is_clean
        .then(|| Path::new(path))
        .ok_or_else(|| Failure::new(format!("the engine sent a path that leads out of the directory: {path:?}")))
}

/// Fetches one file. It gets its name only when it is complete.
async fn fetch_output(
    ctx: &Context<'_>,
    url: &str,
    directory: &Path,
    target: &Path,
    progress: &Progress,
) -> Result<u64> {
    let failed = |e: std::io::Error| Failure::with_cause(format_args!("cannot write {}", target.display()), e);
    let parent = target.parent().unwrap_or(directory);
    std::fs::create_dir_all(directory).map_err(failed)?;
    // An existing symbolic link could lead out of the directory, and the engine chooses the content.
    let there = parent.ancestors().find(|place| place.symlink_metadata().is_ok()).unwrap_or(directory);
    if !there.canonicalize().map_err(failed)?.starts_with(directory.canonicalize().map_err(failed)?) {
        let message = format!("{} leads out of {}; nothing was written there", there.display(), directory.display());
        return Err(Failure::new(message));
    }
    let mut download = Download::start(&ctx.api, url).await?;
    std::fs::create_dir_all(parent).map_err(failed)?;
    let part = PartialFile(parent.join(format!(".tarn-{}.part", std::process::id())));
    let mut file = File::create_new(&part.0).map_err(failed)?;
    let mut bytes = 0;
    while let Some(data) = download.next_chunk().await? {
        file.write_all(&data).map_err(failed)?;
        bytes += data.len() as u64;
        progress.set_message(&format!("Fetching {}, {}", target.display(), format_size(bytes)));
    }
    std::fs::rename(&part.0, target).map_err(failed)?;
    Ok(bytes)
}

/// An incomplete file, which is removed when this value is dropped.
struct PartialFile(PathBuf);

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_out_of_the_directory_are_refused() {
        assert!(check_output_path("a/b c").is_ok());
        for path in ["", "/etc/passwd", "../x", "a/../../x", "."] {
            assert!(check_output_path(path).is_err(), "{path}");
        }
    }
}
