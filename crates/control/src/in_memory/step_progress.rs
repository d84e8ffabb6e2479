//! The progress of long steps, in messages that they report. It is kept in the process that runs the step; a step
//! stores what other replicas have to know.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use tarn_model::ids::RequestId;
use tokio::sync::watch;

/// Longer messages are cut, because they become part of responses and rows.
const MAX_MESSAGE_CHARS: usize = 400;

/// The progress of all steps that run in this process.
#[derive(Default)]
pub(crate) struct StepProgress(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    by_request: HashMap<RequestId, Report>,
    changes: u64,
}

struct Report {
    message: watch::Sender<String>,
    /// How many different messages were reported.
    count: u64,
}

/// Reports the progress of one step. When it is dropped, the progress is removed.
pub(crate) struct ProgressReporter<'p> {
    progress: &'p StepProgress,
    request: RequestId,
    message: watch::Receiver<String>,
}

impl StepProgress {
    /// Starts to report the progress of a step.
    pub(crate) fn start_reporting(&self, request: &RequestId) -> ProgressReporter<'_> {
        let (sender, message) = watch::channel(String::new());
        self.lock_reports().by_request.insert(request.clone(), Report { message: sender, count: 0 });
        ProgressReporter { progress: self, request: request.clone(), message }
    }

    /// Returns the last message of the step of a request.
    pub(crate) fn last_message(&self, request: &RequestId) -> Option<String> {
        let reports = self.lock_reports();
        let message = reports.by_request.get(request)?.message.borrow().clone();
        Some(message).filter(|message| !message.is_empty())
    }

    /// Returns how many messages the step of a request has reported.
    pub(crate) fn report_count(&self, request: &RequestId) -> u64 {
        self.lock_reports().by_request.get(request).map_or(0, |report| report.count)
    }

    /// Returns how many steps report their progress.
    pub(crate) fn reporting_steps(&self) -> usize {
        self.lock_reports().by_request.len()
    }

    /// Counts the changes of all messages.
    pub(crate) fn changes(&self) -> u64 {
        self.lock_reports().changes
    }

    fn lock_reports(&self) -> MutexGuard<'_, Reports> {
        self.0.lock()
    }
}

impl ProgressReporter<'_> {
    /// Reports a message. Repeating the last message changes nothing.
    pub(crate) fn report_progress(&self, message: &str) {
        let message = tarn_base::plain(message, MAX_MESSAGE_CHARS).into_owned();
        let mut reports = self.progress.lock_reports();
        let Some(report) = reports.by_request.get_mut(&self.request) else { return };
        if report.message.send_if_modified(|before| std::mem::replace(before, message.clone()) != message) {
            report.count += 1;
            reports.changes += 1;
        }
    }

    /// Returns a receiver of the messages.
    pub(crate) fn watch_messages(&self) -> watch::Receiver<String> {
        self.message.clone()
    }
}

impl Drop for ProgressReporter<'_> {
    fn drop(&mut self) {
        let mut reports = self.progress.lock_reports();
        reports.by_request.remove(&self.request);
        reports.changes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_known_until_its_reporter_is_dropped() {
        let (progress, request) = (StepProgress::default(), "r-000000000001".parse().unwrap());
        assert_eq!((progress.last_message(&request), progress.report_count(&request)), (None, 0));
        let reporter = progress.start_reporting(&request);
        assert_eq!(progress.last_message(&request), None, "nothing was reported");
        reporter.report_progress("half");
        let changes = progress.changes();
        reporter.report_progress("half");
        assert_eq!(
            (progress.report_count(&request), progress.changes()),
            (1, changes),
            "a repeated message is no change"
        );
        reporter.report_progress(&"long\n".repeat(1000));
        assert_eq!(progress.last_message(&request).unwrap().chars().count(), MAX_MESSAGE_CHARS);
        assert_eq!((progress.report_count(&request), progress.reporting_steps()), (2, 1));
        drop(reporter);
        assert_eq!((progress.last_message(&request), progress.reporting_steps()), (None, 0));
        assert!(progress.changes() > changes);
    }
}
