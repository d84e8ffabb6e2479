//! Backups: copies of an installation that are made while its engine runs, and the restore of one as a new
//! installation.
//!
//! Backups are in a place: a directory or a bucket. Start reading at [`create`] for how a backup is made, at [`place`]
//! for what it consists of, and at [`restore`] for how it is used.

mod create;
mod hold;
mod options;
mod parts;
mod place;
pub(crate) mod record;
mod restore;
mod verify;

pub(crate) use options::{BackupCommand, RestoreOptions};

use std::process::ExitCode;

use crate::failure::Result;
use options::Action;

/// The maximum number of single faults and names that are printed.
const MAX_PRINTED: usize = 20;

/// Runs `tarn admin backup …`.
pub(crate) async fn run_backup(command: BackupCommand, is_json: bool) -> Result<ExitCode> {
    match command.action() {
        Action::Create(options) => create::create_backup(&options, is_json).await,
        Action::Verify(options) => verify::run_verify(&options, is_json).await,
        Action::List(options) => verify::list_backups(&options, is_json).await,
    }
}

/// Runs `tarn restore …`.
pub(crate) async fn run_restore(options: RestoreOptions, is_json: bool) -> Result<ExitCode> {
    restore::run_restore(&options, is_json).await
}

/// Prints a line for people, unless the output is for programs.
fn say(is_json: bool, line: impl std::fmt::Display) {
    if !is_json {
        println!("{line}");
    }
}

/// Prints a body for programs.
fn print_json(is_json: bool, body: &impl serde::Serialize) {
    if is_json {
        println!("{}", serde_json::to_string_pretty(body).unwrap_or_default());
    }
}

/// Joins texts, of which only the first ones are shown.
fn join_some(texts: &[String]) -> String {
    let shown = texts.iter().take(MAX_PRINTED).cloned().collect::<Vec<_>>().join("\n  ");
    match texts.len().checked_sub(MAX_PRINTED) {
        None | Some(0) => shown,
        Some(more) => format!("{shown}\n  and {more} more"),
    }
}
