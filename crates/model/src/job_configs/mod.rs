//! The file that says what a job does, `{name}.tp.toml`: its keys, their limits, and what is wrong with one that is not right.
//!
//! Start reading at [`parse`]. What a key may hold is in `values`, and what people who got a key wrong are told in `hints`.

mod durations;
mod hints;
mod limits;
mod parsing;
#[cfg(test)]
mod tests;
mod values;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use parsing::parse;

/// What a job does.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What people call it.
    pub name: Option<String>,
    /// What it runs, in order.
    pub commands: Vec<String>,
    /// Globs of the files to keep.
    pub outputs: Vec<String>,
    /// What is not uploaded, by the rules of `.gitignore`.
    pub ignore: Vec<String>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// On which nodes it runs.
    pub nodes: Nodes,
    /// After how many seconds it is stopped.
    pub timeout_seconds: Option<u64>,
    /// When it is tried again.
    pub retries: Retries,
    /// Whether it gets a fresh virtual environment of Python.
    pub venv: bool,
}

/// Variables may hold secrets, which stay out of logs.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Config")
            .field("name", &self.name)
            .field("commands", &self.commands)
            .field("outputs", &self.outputs)
            .field("ignore", &self.ignore)
            .field("env", &names)
            .field("nodes", &self.nodes)
            .field("timeout_seconds", &self.timeout_seconds)
            .field("retries", &self.retries)
            .field("venv", &self.venv)
            .finish()
    }
}

/// On which nodes of a cluster a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nodes {
    /// The first one.
    #[default]
    First,
    /// All of them at once.
    All,
}

/// When a job is tried again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    /// How often at most.
    pub count: u32,
    /// After which exit codes, besides faults of the infrastructure.
    pub exit_codes: Vec<u8>,
}

/// What is wrong with a file, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Wrong {
    /// On which line, counted from 1, if on one.
    pub line: Option<usize>,
    /// In words.
    pub what: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// A file to begin with, which says what can stand in it.
pub fn template() -> &'static str {
    include_str!("template.tp.toml")
}
