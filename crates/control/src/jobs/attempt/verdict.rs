//! What the end of an attempt on a node means for the job, in words for its owner. Pure.

use tarn_link::JobEnd;
use tarn_model::jobs::{Job, Outcome};

use super::node::End;

/// The exit code of what was stopped because its time was over, as `timeout` has it.
const TIMED_OUT: u8 = 124;

/// The signal by which the kernel ends processes for want of memory.
const KILL: u8 = 9;

/// What an attempt came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Its outcome.
    pub(super) outcome: Outcome,
    /// Whether another attempt could end otherwise.
    pub(super) may_retry: bool,
    /// Whether it only follows from what happened on another node.
    is_consequence: bool,
}

impl Verdict {
    /// All nodes succeeded.
    pub(super) const COMPLETED: Verdict =
        Verdict { outcome: Outcome::Completed, may_retry: true, is_consequence: false };

    /// Which of two decides, of which the other one was heard first: the first, unless only the second is a cause. A driver that
    /// takes over may hear the consequence before the cause.
    pub(super) fn or(self, earlier: Option<Verdict>) -> Verdict {
        match earlier {
            Some(earlier) if !earlier.is_consequence || self.is_consequence => earlier,
            _ => self,
        }
    }
}

/// Whether a process was killed, so that it is worth asking whether memory ran out: the shell says it by an exit code.
pub(super) fn is_kill(end: &End) -> bool {
    match end {
        End::Said(JobEnd::Exited { code }) => *code == 128 + KILL,
        End::Said(JobEnd::Killed { signal }) => *signal == KILL,
        _ => false,
    }
}

/// What an end on a node means; `None` is success. `memory` says how much the node has if it ran out of it meanwhile, and a
/// node is named where there are several.
pub(super) fn verdict(job: &Job, end: &End, name: &str, is_one_of_many: bool, memory: Option<u64>) -> Option<Verdict> {
    let place = if is_one_of_many { format!("on node {name}") } else { String::new() };
    let error = |exit_code, words: String| {
        let words = [words, place.clone()].into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ");
        Outcome::Error { exit_code, reason: (!words.is_empty()).then_some(words) }
    };
    let failed = |reason: String| Outcome::Failed { reason };
    let mut may_retry = true;
    let outcome = match end {
        End::Said(JobEnd::Exited { code: 0 }) => return None,
        End::Said(JobEnd::Exited { code }) => {
            error(*code, memory.map(out_of_memory).or_else(|| as_of_signal(*code)).unwrap_or_default())
        }
        End::Said(JobEnd::Killed { signal }) => {
            let mut words = format!("ended by signal {}", signal_words(*signal));
            if let Some(memory) = memory {
                words = format!("{words}: {}", out_of_memory(memory));
            }
            error(signal.saturating_add(128), words)
        }
        End::Said(JobEnd::TimedOut) => {
            let limit = job.config.timeout_seconds.map(seconds).unwrap_or_default();
            error(TIMED_OUT, format!("stopped after its timeout of {limit}"))
        }
        End::Said(JobEnd::Stopped) => failed(format!("it was stopped on node {name}")),
        End::Said(JobEnd::Lost) => failed(format!("node {name} was stopped or restarted while it ran")),
        End::NotStarted { reason, may_work_later } => {
            may_retry = *may_work_later;
            failed(format!("it could not be started on node {name}: {reason}"))
        }
        End::NeverStarted => failed(format!("it was stopped before it began on node {name}")),
        End::Gone(why) => failed(why.clone()),
    };
    let is_consequence = matches!(end, End::Said(JobEnd::Stopped) | End::NeverStarted);
    Some(Verdict { outcome, may_retry, is_consequence })
}

fn out_of_memory(bytes: u64) -> String {
    format!("the node ran out of memory (limit {:.1} GiB)", bytes as f64 / (1u64 << 30) as f64)
}

/// What a shell means by such an exit code of a command, unless the command meant something else by it.
fn as_of_signal(code: u8) -> Option<String> {
    let signal = code.checked_sub(128)?;
    signal_name(signal).map(|_| format!("as of a command that signal {} ended", signal_words(signal)))
}

fn signal_words(signal: u8) -> String {
    signal_name(signal).map_or_else(|| signal.to_string(), |name| format!("{signal} ({name})"))
}

fn signal_name(signal: u8) -> Option<&'static str> {
    let name = match signal {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        11 => "SEGV",
        13 => "PIPE",
        15 => "TERM",
        _ => return None,
    };
    Some(name)
}

/// A span of whole seconds as people write it.
fn seconds(all: u64) -> String {
    let parts = [(all / 86_400, "d"), (all / 3600 % 24, "h"), (all / 60 % 60, "m"), (all % 60, "s")];
    let words: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_model::Time;
    use tarn_model::job_configs::Config;
    use tarn_model::jobs::{State, Teardown};
    use tarn_model::users::Owner;

    fn job() -> Job {
        Job {
            id: "j-000000000000".parse().unwrap(),
            owner: Owner { user: "u-000000000001".parse().unwrap(), org: None },
            cluster: "c-000000000001".parse().unwrap(),
            instance_type: "1xCPU".into(),
            name: "heron".into(),
            config: Config { timeout_seconds: Some(5_405), ..Config::default() },
            teardown: Teardown::No,
            archive_bytes: None,
            state: State::Running,
            since: Time::ZERO,
            attempt: 1,
            note: None,
            log_bytes: 0,
            created: Time::ZERO,
            queued: None,
            started: None,
            ended: None,
            version: 0,
        }
    }

    #[test]
    fn ends_have_words() {
        let told = |end: End, many, memory| match verdict(&job(), &end, "c-1-0", many, memory).map(|v| v.outcome) {
            None => "completed".to_owned(),
            Some(Outcome::Error { exit_code, reason }) => format!("{exit_code} {}", reason.unwrap_or_default()),
            Some(other) => format!("{other:?}"),
        };
        let said = |end| told(End::Said(end), false, None);
        assert_eq!(said(JobEnd::Exited { code: 0 }), "completed");
        assert_eq!(said(JobEnd::Exited { code: 3 }), "3 ");
        assert_eq!(told(End::Said(JobEnd::Exited { code: 3 }), true, None), "3 on node c-1-0");
        assert_eq!(said(JobEnd::Exited { code: 139 }), "139 as of a command that signal 11 (SEGV) ended");
        assert_eq!(said(JobEnd::Exited { code: 255 }), "255 ");
        assert_eq!(said(JobEnd::Killed { signal: 9 }), "137 ended by signal 9 (KILL)");
        assert_eq!(
            told(End::Said(JobEnd::Exited { code: 137 }), false, Some(2 << 30)),
            "137 the node ran out of memory (limit 2.0 GiB)"
        );
        assert_eq!(said(JobEnd::TimedOut), "124 stopped after its timeout of 1h 30m 5s");
        assert!(said(JobEnd::Lost).contains("restarted while it ran"));
    }

    #[test]
    fn a_cause_wins_over_what_follows_from_it() {
        let of = |end: End| verdict(&job(), &end, "c-1-0", true, None).unwrap();
        let failed = of(End::Said(JobEnd::Exited { code: 7 }));
        for consequence in [of(End::Said(JobEnd::Stopped)), of(End::NeverStarted)] {
            assert_eq!(failed.clone().or(Some(consequence.clone())), failed);
            assert_eq!(consequence.clone().or(Some(failed.clone())), failed);
            assert_eq!(consequence.clone().or(None), consequence);
        }
        let other = of(End::Said(JobEnd::Exited { code: 8 }));
        assert_eq!(other.or(Some(failed.clone())), failed, "of two causes the first one decides");
    }
}
