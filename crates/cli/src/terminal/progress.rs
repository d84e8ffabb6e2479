//! Progress of something that takes time: a spinner line for a person at a terminal, or single lines for a log.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::commands::Context;
use crate::terminal::output::{print_note, sanitize_line};

/// Shows what the program waits for. Dropping it clears the spinner line.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Whether [`Progress::log_line`] prints, because standard error is not a terminal but may be a log.
    has_log: bool,
}

impl Progress {
    /// Progress that is shown nowhere.
    pub(crate) fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden(), has_log: false }
    }

    /// Progress in the form that suits the terminal and the options of the command.
    pub(crate) fn new(ctx: &Context<'_>) -> Progress {
        if ctx.is_silent() {
            Progress { bar: ProgressBar::hidden(), has_log: !ctx.options.json }
        } else {
            Progress::spinner()
        }
    }

    /// A spinner with a message and the elapsed time.
    pub(crate) fn spinner() -> Progress {
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress { bar, has_log: false }
    }

    /// Hides the spinner while `print` writes to the terminal.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Replaces the message of the spinner.
    pub(crate) fn set_message(&self, message: &str) {
        self.bar.set_message(sanitize_line(message));
    }

    /// Prints a line where there is no spinner.
    pub(crate) fn log_line(&self, message: &str) {
        if self.has_log {
            print_note(message);
        }
    }

    /// The latest message.
    pub(crate) fn last_message(&self) -> String {
        self.bar.message()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
