//! To which installation of the local driver a database is bound.
//!
//! The driver sees the instances and volumes of its own installation only. Two engines with different installations on
//! one database would each take what the other has for lost. So the first engine binds the database to its
//! installation, and another one is refused until an operator binds the database anew.

use std::time::Duration;

use crate::Time;

/// How often a running engine says that it is alive.
pub const BEAT: Duration = Duration::from_secs(10);

/// For how long an engine that said so counts as alive.
pub const ALIVE: Duration = Duration::from_secs(60);

/// An installation of the local driver, and where its engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The id of the installation, which is in its data directory.
    pub installation: String,
    /// The run of the host and the path of the data directory. Only one engine at a time can use these, so an engine
    /// that was killed needs not be waited for there.
    pub seat: String,
}

/// What a database remembers about the engine with the local driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostBinding {
    pub place: Place,
    /// When the engine last said that it is alive; `None` after an orderly stop.
    pub seen: Option<Time>,
}

/// Why an engine may not use the database, or an operator may not bind it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBound {
    /// The database is bound to another installation.
    Foreign { installation: String },
    /// An engine of this installation was alive a moment ago at another place. Waiting helps if it has died.
    AliveElsewhere { seconds_ago: u64 },
}

impl HostBinding {
    /// The binding of an engine that is alive.
    pub fn alive(place: Place, now: Time) -> Self {
        HostBinding { place, seen: Some(now) }
    }

    /// Decides whether an engine at `place` may use a database with this binding. A database without one accepts any.
    pub fn admit(bound: Option<&Self>, place: &Place, now: Time) -> Result<(), NotBound> {
        let Some(bound) = bound else { return Ok(()) };
        if bound.place.installation != place.installation {
            return Err(NotBound::Foreign { installation: bound.place.installation.clone() });
        }
        match bound.seconds_since_alive(now) {
            Some(seconds_ago) if bound.place.seat != place.seat => Err(NotBound::AliveElsewhere { seconds_ago }),
            _ => Ok(()),
        }
    }

    /// Decides whether an operator may bind the database to another installation.
    pub fn check_replaceable(&self, now: Time) -> Result<(), NotBound> {
        self.seconds_since_alive(now).map_or(Ok(()), |seconds_ago| Err(NotBound::AliveElsewhere { seconds_ago }))
    }

    /// Returns how long ago the engine said that it is alive, if it still counts as alive.
    fn seconds_since_alive(&self, now: Time) -> Option<u64> {
        let ago = now.until(self.seen?);
        (ago < ALIVE).then_some(ago.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(installation: &str, seat: &str) -> Place {
        Place { installation: installation.into(), seat: seat.into() }
    }

    /// Every combination of what is bound and of the engine that starts.
    #[test]
    fn only_the_bound_installation_is_admitted() {
        let start = Time::from_micros(1_794_774_000_000_000);
        let (soon, late) = (start.after(ALIVE / 2), start.after(ALIVE));
        let ours = place("abc123", "boot-1 /data");
        let running = HostBinding::alive(ours.clone(), start);
        let stopped = HostBinding { seen: None, ..running.clone() };
        let admit = |bound: Option<&HostBinding>, place: &Place, now| HostBinding::admit(bound, place, now);

        assert_eq!(admit(None, &ours, soon), Ok(()), "a database without a binding accepts any engine");
        assert_eq!(admit(Some(&running), &ours, soon), Ok(()), "an engine that was killed starts again at once");
        let elsewhere = place("abc123", "boot-2 /data");
        assert_eq!(admit(Some(&running), &elsewhere, soon), Err(NotBound::AliveElsewhere { seconds_ago: 30 }));
        assert_eq!(admit(Some(&running), &elsewhere, late), Ok(()), "an engine that is silent has died");
        assert_eq!(admit(Some(&stopped), &elsewhere, soon), Ok(()), "a directory that was moved is still the same");
        let other = place("def456", "boot-1 /data");
        for bound in [&running, &stopped] {
            let foreign = NotBound::Foreign { installation: "abc123".into() };
            assert_eq!(admit(Some(bound), &other, late), Err(foreign));
        }
        assert_eq!(running.check_replaceable(soon), Err(NotBound::AliveElsewhere { seconds_ago: 30 }));
        assert_eq!([running.check_replaceable(late), stopped.check_replaceable(soon)], [Ok(()), Ok(())]);
    }

    /// A clock that is ahead does not make an engine dead.
    #[test]
    fn engine_of_the_future_is_alive() {
        let now = Time::from_micros(1_794_774_000_000_000);
        let bound = HostBinding::alive(place("abc123", "boot-1 /data"), now.after(ALIVE * 10));
        assert_eq!(bound.check_replaceable(now), Err(NotBound::AliveElsewhere { seconds_ago: 0 }));
    }
}
