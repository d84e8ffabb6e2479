//! The version of a build: its number, the commit and the date. The build script and its test include this file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Describes what is built from a directory: `0.2.0 (0123456789, 2026-11-19)`. What is not known is left out. The date is
/// that of `epoch`, in seconds since 1970, or else that of the commit.
pub(crate) fn describe(version: &str, directory: &Path, epoch: Option<&str>) -> String {
    let date = match epoch {
        Some(seconds) => output(Command::new("date").args(["-u", "+%F", "-d", &format!("@{seconds}")])),
        None => git(directory, &["log", "-1", "--date=format-local:%Y-%m-%d", "--format=%cd"]),
    };
    let commit = git(directory, &["rev-parse", "--short=10", "HEAD"]);
    match commit.into_iter().chain(date).collect::<Vec<_>>().join(", ") {
        known if known.is_empty() => version.to_owned(),
        known => format!("{version} ({known})"),
    }
}

/// Returns the file of a repository that changes with each commit and each checkout, and with nothing else. One that does
/// not exist would run the build script at each build.
pub(crate) fn log_of_head(directory: &Path) -> Option<PathBuf> {
    let log = git(directory, &["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    Some(PathBuf::from(log)).filter(|log| log.exists())
}

fn git(directory: &Path, arguments: &[&str]) -> Option<String> {
    output(Command::new("git").env("TZ", "UTC").arg("-C").arg(directory).args(arguments))
}

/// What a program prints, on one line; `None` if it does not exist or fails.
fn output(command: &mut Command) -> Option<String> {
    let done = command.stderr(Stdio::null()).output().ok().filter(|done| done.status.success())?;
    let text = String::from_utf8(done.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
