//! What an examination of a machine found, and what to do about it.

use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is as it should be.
    Ok,
    /// Worth to know; nothing suffers from it now.
    Note,
    /// Something works less well than it could, or will not work before long.
    Warning,
    /// Something does not work.
    Failure,
    /// It could not be looked at.
    Skipped,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check it is of: a name that stays, of an area and of a thing in it.
    pub check: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it.
    pub todo: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Finding { check, level: Level::Ok, found: found.into(), todo: None }
    }

    /// Worth to know.
    pub fn note(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Note, found, todo)
    }

    /// Something works less well than it could.
    pub fn warning(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Warning, found, todo)
    }

    /// Something does not work.
    pub fn failure(check: &'static str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Failure, found, todo)
    }

    /// It could not be looked at.
    pub fn skipped(check: &'static str, why: impl Into<String>, todo: impl Into<String>) -> Self {
        Finding::of(check, Level::Skipped, why, todo)
    }

    /// One of any level; an empty text says that there is nothing to do.
    pub fn of(check: &'static str, level: Level, found: impl Into<String>, todo: impl Into<String>) -> Self {
        let todo = Some(todo.into()).filter(|todo| !todo.is_empty());
        Finding { check, level, found: found.into(), todo }
    }
}
