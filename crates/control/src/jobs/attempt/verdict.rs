//! What the end of an attempt on a node means for the job, with a text for its owner. Pure.

use tarn_link::JobEnd;
use tarn_model::jobs::{Job, Outcome};

use super::node_follower::NodeEnd;

/// The exit code of a job that exceeded its timeout, as `timeout` has it.
const TIMED_OUT: u8 = 124;

/// The signal by which the kernel kills processes when memory runs out.
const KILL: u8 = 9;

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::jobs) struct Verdict {
    pub(in crate::jobs) outcome: Outcome,
    /// Whether another attempt could have another result.
    pub(super) may_retry: bool,
    /// Whether this only follows from what happened on another node.
    is_consequence: bool,
}

impl Verdict {
    /// All nodes succeeded.
    pub(super) const COMPLETED: Verdict =
        Verdict { outcome: Outcome::Completed, may_retry: true, is_consequence: false };

    /// Chooses between this verdict and an earlier one: the earlier one, unless it is a consequence and this one is a
    /// cause. A task that takes over an attempt may receive the consequence before the cause.
    pub(super) fn or_earlier(self, earlier: Option<Verdict>) -> Verdict {
        match earlier {
            Some(earlier) if !earlier.is_consequence || self.is_consequence => earlier,
            _ => self,
        }
    }
}

/// Returns whether a process was killed, so that memory may have run out. A shell reports the signal by an exit code.
pub(super) fn is_killed(end: &NodeEnd) -> bool {
    match end {
        NodeEnd::Reported(JobEnd::Exited { code }) => *code == 128 + KILL,
        NodeEnd::Reported(JobEnd::Killed { signal }) => *signal == KILL,
        _ => false,
    }
}

/// Returns what an end on a node means; `None` is success. `memory` is the memory of the node if it ran out meanwhile.
/// The text names the node if the job has several.
pub(super) fn judge_node_end(
    job: &Job,
    end: &NodeEnd,
    name: &str,
    is_one_of_many: bool,
    memory: Option<u64>,
) -> Option<Verdict> {
    let place = if is_one_of_many { format!("on node {name}") } else { String::new() };
    let error = |exit_code, text: String| {
        let text = [text, place.clone()].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ");
        Outcome::Error { exit_code, reason: (!text.is_empty()).then_some(text) }
    };
    let failed = |reason: String| Outcome::Failed { reason };
    let mut may_retry = true;
    let outcome = match end {
        NodeEnd::Reported(JobEnd::Exited { code: 0 }) => return None,
        NodeEnd::Reported(JobEnd::Exited { code }) => {
            error(*code, memory.map(describe_memory_limit).or_else(|| describe_signal_exit(*code)).unwrap_or_default())
        }
        NodeEnd::Reported(JobEnd::Killed { signal }) => {
            let mut text = format!("ended by signal {}", format_signal(*signal));
            if let Some(memory) = memory {
                text = format!("{text}: {}", describe_memory_limit(memory));
            }
            error(signal.saturating_add(128), text)
        }
        NodeEnd::Reported(JobEnd::TimedOut) => {
            let limit = job.config.timeout_seconds.map(format_seconds).unwrap_or_default();
            error(TIMED_OUT, format!("stopped after its timeout of {limit}"))
        }
        NodeEnd::Reported(JobEnd::Stopped) => failed(format!("it was stopped on node {name}")),
        NodeEnd::Reported(JobEnd::Lost) => failed(format!("node {name} was stopped or restarted while the job ran")),
        NodeEnd::NotStarted { reason, may_work_later } => {
            may_retry = *may_work_later;
            failed(format!("it could not be started on node {name}: {reason}"))
        }
        NodeEnd::NeverStarted => failed(format!("it was stopped before it began on node {name}")),
        NodeEnd::Gone(why) => failed(why.clone()),
    };
    let is_consequence = matches!(end, NodeEnd::Reported(JobEnd::Stopped) | NodeEnd::NeverStarted);
    Some(Verdict { outcome, may_retry, is_consequence })
}

fn describe_memory_limit(bytes: u64) -> String {
    format!("the node ran out of memory (limit {:.1} GiB)", bytes as f64 / (1u64 << 30) as f64)
}

/// Describes an exit code that a shell uses for a command ended by a signal.
fn describe_signal_exit(code: u8) -> Option<String> {
    let signal = code.checked_sub(128)?;
    signal_name(signal).map(|_| format!("like a command ended by signal {}", format_signal(signal)))
}

fn format_signal(signal: u8) -> String {
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

/// Formats whole seconds, such as `1h 30m`.
fn format_seconds(all: u64) -> String {
    let parts = [(all / 86_400, "d"), (all / 3600 % 24, "h"), (all / 60 % 60, "m"), (all % 60, "s")];
    let text: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    text.join(" ")
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

    /// Every end on a node has a description.
    #[test]
    fn ends_are_described() {
        let describe =
            |end: NodeEnd, many, memory| match judge_node_end(&job(), &end, "c-1-0", many, memory).map(|v| v.outcome) {
                None => "completed".to_owned(),
                Some(Outcome::Error { exit_code, reason }) => format!("{exit_code} {}", reason.unwrap_or_default()),
                Some(other) => format!("{other:?}"),
            };
        let describe_report = |end| describe(NodeEnd::Reported(end), false, None);
        assert_eq!(describe_report(JobEnd::Exited { code: 0 }), "completed");
        assert_eq!(describe_report(JobEnd::Exited { code: 3 }), "3 ");
        assert_eq!(describe(NodeEnd::Reported(JobEnd::Exited { code: 3 }), true, None), "3 on node c-1-0");
        assert_eq!(describe_report(JobEnd::Exited { code: 139 }), "139 like a command ended by signal 11 (SEGV)");
        assert_eq!(describe_report(JobEnd::Exited { code: 255 }), "255 ");
        assert_eq!(describe_report(JobEnd::Killed { signal: 9 }), "137 ended by signal 9 (KILL)");
        assert_eq!(
            describe(NodeEnd::Reported(JobEnd::Exited { code: 137 }), false, Some(2 << 30)),
            "137 the node ran out of memory (limit 2.0 GiB)"
        );
        assert_eq!(describe_report(JobEnd::TimedOut), "124 stopped after its timeout of 1h 30m 5s");
        assert!(describe_report(JobEnd::Lost).contains("restarted while the job ran"));
    }

    /// A cause wins over its consequence.
    #[test]
    fn cause_wins_over_consequence() {
        let of = |end: NodeEnd| judge_node_end(&job(), &end, "c-1-0", true, None).unwrap();
        let failed = of(NodeEnd::Reported(JobEnd::Exited { code: 7 }));
        for consequence in [of(NodeEnd::Reported(JobEnd::Stopped)), of(NodeEnd::NeverStarted)] {
            assert_eq!(failed.clone().or_earlier(Some(consequence.clone())), failed);
            assert_eq!(consequence.clone().or_earlier(Some(failed.clone())), failed);
            assert_eq!(consequence.clone().or_earlier(None), consequence);
        }
        let other = of(NodeEnd::Reported(JobEnd::Exited { code: 8 }));
        assert_eq!(other.or_earlier(Some(failed.clone())), failed, "of two causes the first one decides");
    }
}
