//! What is printed: for people a list by areas as it grows, for programs one body at the end.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use tarn_cli::ExitCodes;
use tarn_driver::findings::{Finding, Level};

use super::configuration;
use crate::config::Config;

/// How wide the columns of the levels and of the names are.
const LEVEL: usize = 8;
const NAME: usize = 26;

/// What was found so far.
pub(super) struct Report {
    is_json: bool,
    has_colours: bool,
    findings: Vec<(&'static str, Finding)>,
    configuration: Option<Value>,
    trial: Option<Vec<Value>>,
}

impl Report {
    /// Nothing was looked at yet.
    pub(super) fn begin(is_json: bool, has_colours: bool) -> Report {
        Report { is_json, has_colours, findings: Vec::new(), configuration: None, trial: None }
    }

    /// Takes what an area found, and shows it.
    pub(super) fn add(&mut self, area: &'static str, findings: Vec<Finding>) {
        self.say(&format!("{}\n", area[..1].to_uppercase() + &area[1..]));
        for finding in findings {
            let level = self.coloured(finding.level, word(finding.level));
            self.say(&format!("  {level} {:NAME$} {}\n", finding.check, plain(&finding.found)));
            if let Some(todo) = &finding.todo {
                self.say(&format!("  {:LEVEL$} {:NAME$} → {}\n", "", "", plain(todo)));
            }
            self.findings.push((area, finding));
        }
    }

    /// Shows the configuration that is in effect.
    pub(super) fn show_configuration(&mut self, config: &Config) {
        let shown = configuration::shown(config);
        // JSON has names and values in the same words as TOML has, and a reader of either understands it.
        let text = toml::to_string(&shown).unwrap_or_else(|_| shown.to_string());
        let indented: String = text.lines().map(|line| format!("  {line}\n")).collect();
        self.say(&format!("The configuration in effect\n{}", plain_lines(&indented)));
        self.configuration = Some(shown);
    }

    /// The trial begins.
    pub(super) fn begin_trial(&mut self, what: &str) {
        self.say(&format!("{what}\n"));
        self.trial = Some(Vec::new());
    }

    /// Takes a step of the trial, and shows it.
    pub(super) fn step(&mut self, step: &tarn_cli::Step) {
        let level = if step.failure.is_some() { Level::Failure } else { Level::Ok };
        let told = step.failure.as_deref().unwrap_or(&step.told);
        let line = format!("{:NAME$} {:6.2} s  {}", step.name, step.seconds, plain(told));
        let level = self.coloured(level, word(level));
        self.say(&format!("  {level} {line}\n"));
        let body = json!({ "step": step.name, "ok": step.failure.is_none(), "seconds": step.seconds, "message": told });
        self.trial.get_or_insert_default().push(body);
    }

    /// A failure that no step has told.
    pub(super) fn fail(&mut self, finding: Finding) {
        self.add("full", vec![finding]);
    }

    /// Says what all of it means; the code that the program ends with.
    pub(super) fn end(self, interrupted: bool) -> ExitCode {
        let count = |level| self.findings.iter().filter(|(_, finding)| finding.level == level).count();
        let failed_steps = self.trial.iter().flatten().filter(|step| step["ok"] == false).count();
        let healthy = count(Level::Failure) + failed_steps == 0 && !interrupted;
        let (ok, notes, warnings) = (count(Level::Ok), count(Level::Note), count(Level::Warning));
        let (failures, skipped) = (count(Level::Failure), count(Level::Skipped));
        if self.is_json {
            let each = |(area, finding): &(&str, Finding)| json!({ "area": area, "check": finding.check, "level": finding.level, "found": finding.found, "todo": finding.todo });
            let body = json!({
                "version": 1,
                "tarn": env!("CARGO_PKG_VERSION"),
                "healthy": healthy,
                "counts": { "ok": ok, "note": notes, "warning": warnings, "failure": failures, "skipped": skipped },
                "findings": self.findings.iter().map(each).collect::<Vec<_>>(),
                "trial": self.trial,
                "configuration": self.configuration,
            });
            write(&format!("{}\n", serde_json::to_string_pretty(&body).unwrap_or_default()));
        } else {
            let steps =
                if failed_steps > 0 { format!(", failed steps of the trial: {failed_steps}") } else { String::new() };
            let some = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            let (notes, warnings) = (some(notes, "note"), some(warnings, "warning"));
            let failures = some(failures, "failure");
            let verdict = verdict(healthy, &warnings);
            write(&format!("\n{verdict}: {ok} ok, {notes}, {warnings}, {failures}{steps}, {skipped} skipped.\n"));
        }
        match (interrupted, healthy) {
            (true, _) => ExitCode::from(ExitCodes::INTERRUPTED),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::from(ExitCodes::FAILED),
        }
    }

    fn say(&self, text: &str) {
        if !self.is_json {
            write(text);
        }
    }

    fn coloured(&self, level: Level, word: &str) -> String {
        let code = match level {
            Level::Ok => "32",
            Level::Note => "36",
            Level::Warning => "33",
            Level::Failure => "31;1",
            Level::Skipped => "2",
        };
        if self.has_colours { format!("\x1b[{code}m{word:LEVEL$}\x1b[0m") } else { format!("{word:LEVEL$}") }
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Failure => "FAILURE",
        Level::Skipped => "skipped",
    }
}

/// Whoever reads only the beginning has what he wants.
fn write(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

/// What all of it means in a word. What is warned of may not work before long, which is not well.
fn verdict(healthy: bool, warnings: &str) -> String {
    match (healthy, warnings) {
        (false, _) => "Something does not work".to_owned(),
        (true, "0 warnings") => "All is well".to_owned(),
        (true, warnings) => format!("Nothing failed; {warnings}"),
    }
}

/// Names of programs and of files may hold anything: nothing of it commands a terminal, and a line stays one.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn plain_lines(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_and_lines_stay_lines() {
        assert_eq!(Report::begin(false, false).coloured(Level::Warning, "warning"), "warning ");
        assert!(Report::begin(false, true).coloured(Level::Failure, "FAILURE").starts_with("\x1b[31;1mFAILURE"));
        assert_eq!(plain("a\x1b[2J\nb"), "a [2J b");
    }

    #[test]
    fn all_is_well_without_a_warning_only() {
        assert_eq!(verdict(true, "0 warnings"), "All is well");
        assert_eq!(verdict(true, "2 warnings"), "Nothing failed; 2 warnings");
        assert_eq!(verdict(false, "2 warnings"), "Something does not work");
    }
}
