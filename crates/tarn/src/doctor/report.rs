//! The report: for people a list by area that grows, for programs one JSON body at the end.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use tarn_base::plain;
use tarn_cli::ExitCodes;
use tarn_driver::findings::{Finding, Level};

use super::checks::configuration;
use crate::config::Config;

/// The widths of the columns with the level and the name.
const LEVEL_WIDTH: usize = 8;
const NAME_WIDTH: usize = 26;

/// The maximum length of a text. Names of programs and files may contain anything.
const MAX_LINE_CHARS: usize = 10_000;

/// The findings so far.
pub(super) struct Report {
    is_json: bool,
    has_color: bool,
    findings: Vec<(&'static str, Finding)>,
    configuration: Option<Value>,
    trial: Option<Vec<Value>>,
}

impl Report {
    /// An empty report.
    pub(super) fn new(is_json: bool, has_color: bool) -> Report {
        Report { is_json, has_color, findings: Vec::new(), configuration: None, trial: None }
    }

    /// Adds and prints the findings of an area.
    pub(super) fn add_area(&mut self, area: &'static str, findings: Vec<Finding>) {
        self.print_text(&format!("{}\n", area[..1].to_uppercase() + &area[1..]));
        for finding in findings {
            let level = self.with_color(finding.level, level_word(finding.level));
            self.print_text(&format!(
                "  {level} {:NAME_WIDTH$} {}\n",
                finding.check,
                plain(&finding.found, MAX_LINE_CHARS)
            ));
            if let Some(todo) = &finding.todo {
                self.print_text(&format!(
                    "  {:LEVEL_WIDTH$} {:NAME_WIDTH$} → {}\n",
                    "",
                    "",
                    plain(todo, MAX_LINE_CHARS)
                ));
            }
            self.findings.push((area, finding));
        }
    }

    /// Prints the configuration in effect.
    pub(super) fn show_configuration(&mut self, config: &Config) {
        let shown = configuration::without_secrets(config);
        // TOML is what the operator knows from the file; JSON is the fallback.
        let text = toml::to_string(&shown).unwrap_or_else(|_| shown.to_string());
        let indented: String = text.lines().map(|line| format!("  {}\n", plain(line, MAX_LINE_CHARS))).collect();
        self.print_text(&format!("The configuration in effect\n{indented}"));
        self.configuration = Some(shown);
    }

    /// Starts the section of the trial.
    pub(super) fn begin_trial(&mut self, what: &str) {
        self.print_text(&format!("{what}\n"));
        self.trial = Some(Vec::new());
    }

    /// Adds and prints a step of the trial.
    pub(super) fn add_step(&mut self, step: &tarn_cli::TrialStep) {
        let level = if step.failure.is_some() { Level::Failure } else { Level::Ok };
        let result = step.failure.as_deref().unwrap_or(&step.result);
        let line = format!("{:NAME_WIDTH$} {:6.2} s  {}", step.name, step.seconds, plain(result, MAX_LINE_CHARS));
        let level = self.with_color(level, level_word(level));
        self.print_text(&format!("  {level} {line}\n"));
        let body =
            json!({ "step": step.name, "ok": step.failure.is_none(), "seconds": step.seconds, "message": result });
        self.trial.get_or_insert_default().push(body);
    }

    /// Adds a failure that is not a step.
    pub(super) fn add_failure(&mut self, finding: Finding) {
        self.add_area("full", vec![finding]);
    }

    /// Prints the verdict, and returns the exit code.
    pub(super) fn finish(self, interrupted: bool) -> ExitCode {
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
            write_stdout(&format!("{}\n", serde_json::to_string_pretty(&body).unwrap_or_default()));
        } else {
            let steps =
                if failed_steps > 0 { format!(", failed steps of the trial: {failed_steps}") } else { String::new() };
            let some = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
            let (notes, warnings) = (some(notes, "note"), some(warnings, "warning"));
            let failures = some(failures, "failure");
            let verdict = verdict(healthy, &warnings);
            write_stdout(&format!(
                "\n{verdict}: {ok} ok, {notes}, {warnings}, {failures}{steps}, {skipped} skipped.\n"
            ));
        }
        match (interrupted, healthy) {
            (true, _) => ExitCode::from(ExitCodes::INTERRUPTED),
            (false, true) => ExitCode::SUCCESS,
            (false, false) => ExitCode::from(ExitCodes::FAILED),
        }
    }

    fn print_text(&self, text: &str) {
        if !self.is_json {
            write_stdout(text);
        }
    }

    fn with_color(&self, level: Level, word: &str) -> String {
        let code = match level {
            Level::Ok => "32",
            Level::Note => "36",
            Level::Warning => "33",
            Level::Failure => "31;1",
            Level::Skipped => "2",
        };
        if self.has_color { format!("\x1b[{code}m{word:LEVEL_WIDTH$}\x1b[0m") } else { format!("{word:LEVEL_WIDTH$}") }
    }
}

fn level_word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Note => "note",
        Level::Warning => "warning",
        Level::Failure => "FAILURE",
        Level::Skipped => "skipped",
    }
}

/// Writes to standard output. A closed pipe is not an error.
fn write_stdout(text: &str) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
}

/// The verdict. With warnings it does not say that all is well.
fn verdict(healthy: bool, warnings: &str) -> String {
    match (healthy, warnings) {
        (false, _) => "Something does not work".to_owned(),
        (true, "0 warnings") => "All is well".to_owned(),
        (true, warnings) => format!("Nothing failed; {warnings}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_need_a_terminal() {
        assert_eq!(Report::new(false, false).with_color(Level::Warning, "warning"), "warning ");
        assert!(Report::new(false, true).with_color(Level::Failure, "FAILURE").starts_with("\x1b[31;1mFAILURE"));
    }

    #[test]
    fn warnings_are_not_well() {
        assert_eq!(verdict(true, "0 warnings"), "All is well");
        assert_eq!(verdict(true, "2 warnings"), "Nothing failed; 2 warnings");
        assert_eq!(verdict(false, "2 warnings"), "Something does not work");
    }
}
