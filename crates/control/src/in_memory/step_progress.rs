//! How far steps are that take long and tell it, in their own message. It is kept where the step runs; what others have to know
//! of it is written down by the step itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tarn_model::ids::RequestId;
use tokio::sync::watch;

/// Longer message are cut: they become part of answers and rows.
const MAX_MESSAGE_CHARS: usize = 400;

/// What this process is report.
#[derive(Default)]
pub(crate) struct StepProgress(Mutex<Reports>);

#[derive(Default)]
struct Reports {
    by_request: HashMap<RequestId, Report>,
    changes: u64,
}

struct Report {
    message: watch::Sender<String>,
    /// How often it was report something.
    count: u64,
}

/// A step that tells how far it is. When it is dropped, nothing is reports any more.
pub(crate) struct ProgressReporter<'p> {
    progress: &'p StepProgress,
    request: RequestId,
    message: watch::Receiver<String>,
}

impl StepProgress {
    /// A step begins to tell.
    pub(crate) fn start_reporting(&self, request: &RequestId) -> ProgressReporter<'_> {
        let (sender, message) = watch::channel(String::new());
        self.lock_reports().by_request.insert(request.clone(), Report { message: sender, count: 0 });
        ProgressReporter { progress: self, request: request.clone(), message }
    }

    /// What the step of a request report last.
    pub(crate) fn last_message(&self, request: &RequestId) -> Option<String> {
        let reports = self.lock_reports();
        let message = reports.by_request.get(request)?.message.borrow().clone();
        Some(message).filter(|message| !message.is_empty())
    }

    /// How often the step of a request has report something.
    pub(crate) fn report_count(&self, request: &RequestId) -> u64 {
        self.lock_reports().by_request.get(request).map_or(0, |report| report.count)
    }

    /// How many steps tell how far they are.
    pub(crate) fn reporting_steps(&self) -> usize {
        self.lock_reports().by_request.len()
    }

    /// Counts how often something else was report, by whomever.
    pub(crate) fn changes(&self) -> u64 {
        self.lock_reports().changes
    }

    fn lock_reports(&self) -> MutexGuard<'_, Reports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProgressReporter<'_> {
    /// Tells how far it is. The same again is no news to anybody.
    pub(crate) fn report_progress(&self, message: &str) {
        let message: String = message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE_CHARS).collect();
        let mut reports = self.progress.lock_reports();
        let Some(report) = reports.by_request.get_mut(&self.request) else { return };
        if report.message.send_if_modified(|before| std::mem::replace(before, message.clone()) != message) {
            report.count += 1;
            reports.changes += 1;
        }
    }

    /// Follows what is report.
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
    fn what_is_told_is_known_until_the_end() {
        let (progress, request) = (StepProgress::default(), "r-000000000001".parse().unwrap());
        assert_eq!((progress.last_message(&request), progress.report_count(&request)), (None, 0));
        let reporter = progress.start_reporting(&request);
        assert_eq!(progress.last_message(&request), None, "nothing was report");
        reporter.report_progress("half");
        let changes = progress.changes();
        reporter.report_progress("half");
        assert_eq!((progress.report_count(&request), progress.changes()), (1, changes), "that is no news");
        reporter.report_progress(&"long\n".repeat(1000));
        assert_eq!(progress.last_message(&request).unwrap().len(), MAX_MESSAGE_CHARS);
        assert_eq!((progress.report_count(&request), progress.reporting_steps()), (2, 1));
        drop(reporter);
        assert_eq!((progress.last_message(&request), progress.reporting_steps()), (None, 0));
        assert!(progress.changes() > changes);
    }
}
