//! The limits of an organization, or of a user without one.

use crate::Refused;

/// An amount of every limited resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Nodes of clusters.
    pub instances: u64,
    /// Thousandths of their CPUs.
    pub cpu_milli: u64,
    /// Their GPUs.
    pub gpus: u64,
    /// Gigabytes of volumes.
    pub volume_gb: u64,
    /// Bytes of objects.
    pub object_bytes: u64,
    /// Claims that were examined, did not fit, and wait.
    pub waiting: u64,
    /// Bytes of the files, logs and outputs of jobs.
    pub job_bytes: u64,
}

/// The limit of every resource; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct Limits {
    pub instances: Option<u64>,
    pub cpu_milli: Option<u64>,
    pub gpus: Option<u64>,
    pub volume_gb: Option<u64>,
    /// An object may replace another one, so object storage calls [`fits`] itself.
    pub object_bytes: Option<u64>,
    /// Of claims that wait; zero is no limit. Only [`Limits::admit_claim`] checks it.
    pub waiting: Option<u64>,
    pub job_bytes: Option<u64>,
}

/// How many claims of an organization may wait if nothing else is configured.
pub const DEFAULT_WAITING: u64 = 16;

/// How many claims of an organization may be in the line before the runner has examined them, beyond those that may
/// wait. Only a runner that cannot keep up lets so many gather.
pub const MAX_UNEXAMINED: u64 = 1000;

/// Returns whether `more` is within a limit. Zero always is, because a limit may have been lowered below what is used.
pub fn fits(limit: u64, used: u64, more: u64) -> bool {
    more == 0 || used.saturating_add(more) <= limit
}

impl Limits {
    /// Returns these limits, and those of `others` where there is none.
    pub fn or(self, others: Limits) -> Limits {
        Limits {
            instances: self.instances.or(others.instances),
            cpu_milli: self.cpu_milli.or(others.cpu_milli),
            gpus: self.gpus.or(others.gpus),
            volume_gb: self.volume_gb.or(others.volume_gb),
            object_bytes: self.object_bytes.or(others.object_bytes),
            waiting: self.waiting.or(others.waiting),
            job_bytes: self.job_bytes.or(others.job_bytes),
        }
    }

    /// Returns those of these limits that an amount counts against. The claims that wait and the bytes of objects are
    /// not among them: other functions check them.
    pub fn relevant_to(&self, more: &Amounts) -> Limits {
        let of = |limit: Option<u64>, more: u64| limit.filter(|_| more > 0);
        Limits {
            instances: of(self.instances, more.instances),
            cpu_milli: of(self.cpu_milli, more.cpu_milli),
            gpus: of(self.gpus, more.gpus),
            volume_gb: of(self.volume_gb, more.volume_gb),
            object_bytes: None,
            waiting: None,
            job_bytes: of(self.job_bytes, more.job_bytes),
        }
    }

    /// Returns whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }

    /// Returns the number of claims that may wait, if it is limited.
    pub fn waiting(&self) -> Option<u64> {
        self.waiting.filter(|limit| *limit > 0)
    }

    /// Refuses another claim when as many wait as may wait. Claims that were not examined yet may all fit, so they do
    /// not count until there are very many of them.
    pub fn admit_claim(&self, scope: &str, waiting: u64, in_line: u64) -> Result<(), Refused> {
        match self.waiting() {
            Some(limit) if waiting >= limit || in_line >= limit.saturating_add(MAX_UNEXAMINED) => {
                Err(Refused::TooManyWaiting { whose: whose(scope), limit, waiting: waiting.max(limit) })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses an amount that exceeds a limit.
    pub fn admit(&self, scope: &str, used: &Amounts, more: &Amounts) -> Result<(), Refused> {
        let plain: fn(u64) -> String = |count| count.to_string();
        // Bytes are shown exactly, so that a user sees how much to remove.
        let megabytes: fn(u64) -> String = |bytes| format!("{}", bytes as f64 / 1e6);
        let thousandths: fn(u64) -> String = |milli| format!("{}", milli as f64 / 1000.0);
        for (limit, used, more, shown, [one, other]) in [
            (self.instances, used.instances, more.instances, plain, ["instance", "instances"]),
            (self.cpu_milli, used.cpu_milli, more.cpu_milli, thousandths, ["CPU", "CPUs"]),
            (self.gpus, used.gpus, more.gpus, plain, ["GPU", "GPUs"]),
            (self.volume_gb, used.volume_gb, more.volume_gb, plain, ["GB of storage volumes"; 2]),
            (self.job_bytes, used.job_bytes, more.job_bytes, megabytes, ["MB of job files, logs and outputs"; 2]),
        ] {
            let Some(limit) = limit else { continue };
            if !fits(limit, used, more) {
                let whose = whose(scope);
                let (limit, used, more) = (shown(limit), shown(used), shown(more));
                let what = if limit == "1" { one } else { other };
                return Err(Refused::LimitReached { whose, what, limit, used, more });
            }
        }
        Ok(())
    }
}

fn whose(scope: &str) -> &'static str {
    if scope.starts_with("o-") { "organization" } else { "user" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(count: u64) -> Amounts {
        Amounts { gpus: count, ..Amounts::default() }
    }

    #[test]
    fn only_what_is_asked_for_is_relevant() {
        let all = Some(1);
        let limits = Limits {
            instances: all,
            cpu_milli: all,
            gpus: all,
            volume_gb: all,
            object_bytes: all,
            waiting: all,
            job_bytes: all,
        };
        assert_eq!(limits.relevant_to(&gpus(3)), Limits { gpus: all, ..Limits::default() });
        let volume = Amounts { volume_gb: 1, object_bytes: 1, waiting: 1, job_bytes: 1, ..Amounts::default() };
        let expected = Limits { volume_gb: all, job_bytes: all, ..Limits::default() };
        assert_eq!(limits.relevant_to(&volume), expected);
        let nodes = Amounts { instances: 1, cpu_milli: 1, ..Amounts::default() };
        let others = Limits { object_bytes: all, waiting: all, job_bytes: all, ..Limits::default() };
        assert!(others.relevant_to(&nodes).is_empty(), "usage that nothing asks for is not read");
    }

    #[test]
    fn refusal_names_the_amounts() {
        let limits = Limits { gpus: Some(8), ..Limits::default() };
        let refused = limits.admit("o-7k2m9q4x0abc", &gpus(6), &gpus(4)).unwrap_err();
        assert!(
            refused.to_string().starts_with("the organization may have 8 GPUs, has 6 and this asks for 4"),
            "{refused}"
        );
        assert_eq!((refused.code(), limits.admit("u-1", &gpus(6), &gpus(2))), ("limit_reached", Ok(())));
        let cpus = Limits { cpu_milli: Some(1500), ..Limits::default() };
        let half = Amounts { cpu_milli: 500, ..Amounts::default() };
        let text = cpus.admit("u-1", &Amounts { cpu_milli: 1250, ..half }, &half).unwrap_err().to_string();
        assert!(text.starts_with("the user may have 1.5 CPUs, has 1.25 and this asks for 0.5"), "{text}");
        let files = Limits { job_bytes: Some(2_500_000), ..Limits::default() };
        let one = Amounts { job_bytes: 1_500_001, ..Amounts::default() };
        let text = files.admit("o-1", &one, &one).unwrap_err().to_string();
        let start =
            "the organization may have 2.5 MB of job files, logs and outputs, has 1.500001 and this asks for 1.500001";
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn unused_resource_is_not_checked() {
        let limits = Limits { gpus: Some(1), instances: Some(10), ..Limits::default() };
        let one = Amounts { instances: 1, ..Amounts::default() };
        assert_eq!(limits.admit("o-1", &gpus(6), &one), Ok(()), "lowered below what there is");
        assert_eq!(limits.admit("o-1", &gpus(u64::MAX), &gpus(u64::MAX)).unwrap_err().code(), "limit_reached");
    }

    #[test]
    fn claims_are_refused_when_enough_wait() {
        let limits = Limits { waiting: Some(2), ..Limits::default() };
        assert_eq!(limits.admit_claim("o-1", 1, 500), Ok(()), "claims that were not examined may fit");
        let refused = limits.admit_claim("o-1", 2, 2).unwrap_err();
        assert_eq!(refused.code(), "limit_reached");
        let told = "2 clusters of the organization wait for capacity, and no more than 2 may wait";
        assert!(refused.to_string().starts_with(told), "{refused}");
        assert!(limits.admit_claim("o-1", 0, 2 + MAX_UNEXAMINED).is_err());
        for unlimited in [Limits { waiting: Some(0), ..Limits::default() }, Limits::default()] {
            assert_eq!(unlimited.admit_claim("o-1", u64::MAX, u64::MAX), Ok(()));
        }
    }

    #[test]
    fn own_limits_override_others() {
        let own = Limits { gpus: Some(0), ..Limits::default() };
        let all = own.or(Limits { gpus: Some(8), volume_gb: Some(5), ..Limits::default() });
        assert_eq!((all.gpus, all.volume_gb, all.instances), (Some(0), Some(5), None));
        assert!(Limits::default().is_empty() && !all.is_empty());
    }
}
