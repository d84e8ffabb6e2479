//! `tarn job pull`: the outputs of a job, as files below a directory.

use std::fs::File;
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::pack::size;
use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, line};
use crate::transfers::Download;
use crate::waits::Progress;
use crate::{paths, show};

#[derive(Args, Debug)]
pub struct Pull {
    /// Its ID, or its name: the newest that is called so
    job: String,
    /// Only these files, as --dry-run shows them
    #[arg(long, value_name = "PATH", num_args = 1..)]
    files: Vec<String>,
    /// Show what there is, and fetch nothing
    #[arg(long)]
    dry_run: bool,
    /// Overwrite what is here already
    #[arg(long)]
    force: bool,
    /// Where they go
    #[arg(long, value_name = "PATH", default_value = ".")]
    dir: PathBuf,
    /// Not needed; the stock client has it
    #[arg(short = 'i', long, value_name = "PATH", hide = true)]
    private_key: Option<PathBuf>,
}

/// What became of the files.
#[derive(Default)]
pub(super) struct Fetched {
    count: usize,
    bytes: u64,
    /// Those that were here already.
    left: usize,
}

pub(crate) async fn run(ctx: &Context<'_>, pull: Pull) -> Result<()> {
    let mut query = vec![("dry_run", pull.dry_run.to_string())];
    query.extend(pull.files.iter().map(|file| ("files", file.clone())));
    let job = super::id_of(ctx, &pull.job).await?;
    let body = ctx.engine.get(&format!("/job/pull/{}", paths::segment(&job)?), &query).await?;
    if pull.dry_run {
        return show::once(ctx, &body, listed);
    }
    let directory = paths::expand(ctx.surroundings, &pull.dir);
    let fetched = fetch_all(ctx, &body, &directory, pull.force).await?;
    show::once(ctx, &body, |body| match fetched.count + fetched.left {
        0 => output::message(body),
        _ => fetched.told(&directory),
    })
}

impl Fetched {
    /// The same in words.
    pub(super) fn told(&self, directory: &Path) -> String {
        let files = |count| if count == 1 { "1 file".to_owned() } else { format!("{count} files") };
        let mut told = format!("Fetched {}, {}, to {}.", files(self.count), size(self.bytes), directory.display());
        if self.left > 0 {
            let here = if self.left == 1 { "was" } else { "were" };
            told.push_str(&format!(" {} {here} here already; --force overwrites.", files(self.left)));
        }
        told
    }
}

fn listed(body: &Value) -> String {
    let names: Vec<String> =
        body["download_map"].as_object().into_iter().flatten().map(|(path, _)| line(path)).collect();
    if names.is_empty() { output::message(body) } else { names.join("\n") }
}

/// Fetches everything that an answer names.
pub(super) async fn fetch_all(ctx: &Context<'_>, body: &Value, directory: &Path, force: bool) -> Result<Fetched> {
    let progress = Progress::new(ctx);
    let mut fetched = Fetched::default();
    for (path, url) in body["download_map"].as_object().into_iter().flatten() {
        let target = directory.join(checked(path)?);
        let url = url.as_str().ok_or_else(|| Failure::new(format!("the engine does not say where {path:?} is")))?;
        if !force && target.symlink_metadata().is_ok() {
            fetched.left += 1;
            continue;
        }
        progress.tell(&format!("Fetches {path}"));
        let bytes = tokio::select! {
            biased;
            () = ctx.interrupts.pressed() => {
                return Err(Failure::interrupted("not all files were fetched; pull again"));
            }
            bytes = fetch(ctx, url, directory, &target, &progress) => bytes?,
        };
        fetched.bytes += bytes;
        fetched.count += 1;
    }
    Ok(fetched)
}

/// A path that stays below the directory, whatever the engine says.
fn checked(path: &str) -> Result<&Path> {
    let is_clean = !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    is_clean
        .then(|| Path::new(path))
        .ok_or_else(|| Failure::new(format!("the engine sends a path that leads elsewhere: {path:?}")))
}

/// Fetches one file; it is whole when it has its name.
async fn fetch(ctx: &Context<'_>, url: &str, directory: &Path, target: &Path, progress: &Progress) -> Result<u64> {
    let failed = |e: std::io::Error| Failure::doing(format_args!("{} cannot be written", target.display()), e);
    let parent = target.parent().unwrap_or(directory);
    std::fs::create_dir_all(directory).map_err(failed)?;
    // A link that is here already could lead anywhere, and what would be written there is the engine's choice.
    let there = parent.ancestors().find(|place| place.symlink_metadata().is_ok()).unwrap_or(directory);
    if !there.canonicalize().map_err(failed)?.starts_with(directory.canonicalize().map_err(failed)?) {
        let message = format!("{} leads out of {}; nothing is written there", there.display(), directory.display());
        return Err(Failure::new(message));
    }
    let mut download = Download::begin(&ctx.engine, url).await?;
    std::fs::create_dir_all(parent).map_err(failed)?;
    let part = Part(parent.join(format!(".tarn-{}.part", std::process::id())));
    let mut file = File::create_new(&part.0).map_err(failed)?;
    let mut bytes = 0;
    while let Some(data) = download.next().await? {
        file.write_all(&data).map_err(failed)?;
        bytes += data.len() as u64;
        progress.tell(&format!("Fetches {}, {}", target.display(), size(bytes)));
    }
    std::fs::rename(&part.0, target).map_err(failed)?;
    Ok(bytes)
}

/// A file that is not whole yet, and goes if it never is.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below() {
        assert!(checked("a/b c").is_ok());
        for path in ["", "/etc/passwd", "../x", "a/../../x", "."] {
            assert!(checked(path).is_err(), "{path}");
        }
    }
}
