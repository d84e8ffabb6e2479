//! What an examination of a host found, and what to do about it.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Worth knowing; nothing is affected now.
    Note,
    /// Something works worse than it could, or will stop working before long.
    Warning,
    Failure,
    /// The check could not be performed.
    Skipped,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The stable name of the check: an area and a subject in it.
    pub check: &'static str,
    pub level: Level,
    pub found: String,
    pub todo: Option<String>,
}

impl Finding {
    /// Everything is as it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, level: Level::Ok, found: found.into(), todo: None }
    }

    /// Worth knowing.
    pub fn note(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Note, found, todo)
    }

    /// Something works worse than it could.
    pub fn warning(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Warning, found, todo)
    }

    /// Something does not work.
    pub fn failure(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Failure, found, todo)
    }

    /// The check could not be performed.
    pub fn skipped(check: &'static str, why: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Skipped, why, todo)
    }

    /// A finding of any level; an empty `todo` means that there is nothing to do.
    pub fn of(check: &'static str, level: Level, found: impl Into<String>, todo: impl Into<String>) -> Self {
        let todo = Some(todo.into()).filter(|todo| !todo.is_empty());
        Finding { check, level, found: found.into(), todo }
    }
}
