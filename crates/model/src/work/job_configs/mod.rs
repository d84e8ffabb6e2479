//! The job file `{name}.tp.toml`: its keys, their limits, and the messages for a file that is not valid.
//!
//! Start reading at [`parse`]. `values` parses the value of each key, and `hints` helps users who write an unknown key.

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
    pub name: Option<String>,
    pub commands: Vec<String>,
    /// Globs of the files to keep.
    pub outputs: Vec<String>,
    /// Patterns of files that are not uploaded, by the rules of `.gitignore`.
    pub ignore: Vec<String>,
    pub env: Vec<(String, String)>,
    pub nodes: Nodes,
    /// After how many seconds it is stopped.
    pub timeout_seconds: Option<u64>,
    pub retries: Retries,
    /// Whether it gets a fresh Python virtual environment.
    pub venv: bool,
}

/// Variables may hold secrets, which must not be logged.
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

/// The nodes of a cluster that a job runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nodes {
    /// The first one.
    #[default]
    First,
    All,
}

/// How often and when a job is attempted again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retries {
    pub count: u32,
    /// The exit codes that are retried, besides failures of the infrastructure.
    pub exit_codes: Vec<u8>,
}

/// What is wrong with a job file, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The line, counted from 1, if the error is on one line.
    pub line: Option<usize>,
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// Returns a template of a job file that documents every key.
pub fn template() -> &'static str {
    include_str!("template.tp.toml")
}
