//! Which driver a database is bound to: the local driver of one installation, or the fake driver.
//!
//! A driver sees the instances and volumes of its own installation only. Two engines with different installations, or
//! different drivers, on one database would each take what the other has for lost. So the first engine binds the
//! database, and another one is refused until an operator binds the database anew.

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

/// Which driver has the instances and volumes of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverBinding {
    /// The local driver of one installation.
    Host(HostBinding),
    /// The fake driver, whose world replicas share.
    Fake,
}

/// An engine that is about to use a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// It has the local driver, at this place.
    Host(Place),
    /// It has the fake driver.
    Fake,
}

/// Why an engine may not use the database, or an operator may not bind it anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotBound {
    /// The database is bound to another installation of the local driver.
    Foreign { installation: String },
    /// The database is bound to the fake driver.
    OfFakeDriver,
    /// An engine of this installation was alive a moment ago at another place. Waiting helps if it has died.
    AliveElsewhere { seconds_ago: u64 },
}

impl DriverBinding {
    /// Decides whether an engine may use a database with this binding. A database without one accepts any.
    pub fn admit(bound: Option<&Self>, claimant: &Claimant, now: Time) -> Result<(), NotBound> {
        match (bound, claimant) {
            (None, _) | (Some(DriverBinding::Fake), Claimant::Fake) => Ok(()),
            (Some(DriverBinding::Host(bound)), Claimant::Host(place)) => bound.admit(place, now),
            (Some(DriverBinding::Host(bound)), Claimant::Fake) => Err(bound.foreign()),
            (Some(DriverBinding::Fake), Claimant::Host(_)) => Err(NotBound::OfFakeDriver),
        }
    }

    /// Decides whether an operator may bind the database to another installation. Engines with the fake driver do not
    /// say that they are alive; only their connections to the database show it.
    pub fn check_replaceable(&self, now: Time) -> Result<(), NotBound> {
        match self {
            DriverBinding::Host(bound) => bound.check_replaceable(now),
            DriverBinding::Fake => Ok(()),
        }
    }
}

impl HostBinding {
    /// The binding of an engine that is alive.
    pub fn alive(place: Place, now: Time) -> Self {
        HostBinding { place, seen: Some(now) }
    }

    /// Decides whether an engine with the local driver at `place` may use the database.
    fn admit(&self, place: &Place, now: Time) -> Result<(), NotBound> {
        if self.place.installation != place.installation {
            return Err(self.foreign());
        }
        match self.seconds_since_alive(now) {
            Some(seconds_ago) if self.place.seat != place.seat => Err(NotBound::AliveElsewhere { seconds_ago }),
            _ => Ok(()),
        }
    }

    fn foreign(&self) -> NotBound {
        NotBound::Foreign { installation: self.place.installation.clone() }
    }

    fn check_replaceable(&self, now: Time) -> Result<(), NotBound> {
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
        let admit = |bound: Option<&HostBinding>, place: &Place, now| {
            DriverBinding::admit(bound.cloned().map(DriverBinding::Host).as_ref(), &Claimant::Host(place.clone()), now)
        };

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

    /// The fake driver has no part in what the local driver has, and the other way around.
    #[test]
    fn drivers_share_no_database() {
        let now = Time::from_micros(1_794_774_000_000_000);
        let (host, stopped) = (place("abc123", "boot-1 /data"), None);
        let bound = DriverBinding::Host(HostBinding { place: host.clone(), seen: stopped });
        let foreign = NotBound::Foreign { installation: "abc123".into() };
        assert_eq!(DriverBinding::admit(Some(&bound), &Claimant::Fake, now), Err(foreign));
        let fake = DriverBinding::Fake;
        assert_eq!(DriverBinding::admit(Some(&fake), &Claimant::Host(host), now), Err(NotBound::OfFakeDriver));
        assert_eq!(DriverBinding::admit(Some(&fake), &Claimant::Fake, now), Ok(()), "replicas share it");
        assert_eq!(DriverBinding::admit(None, &Claimant::Fake, now), Ok(()));
        assert_eq!(fake.check_replaceable(now), Ok(()));
    }

    /// A clock that is ahead does not make an engine dead.
    #[test]
    fn engine_of_the_future_is_alive() {
        let now = Time::from_micros(1_794_774_000_000_000);
        let bound = HostBinding::alive(place("abc123", "boot-1 /data"), now.after(ALIVE * 10));
        assert_eq!(bound.check_replaceable(now), Err(NotBound::AliveElsewhere { seconds_ago: 0 }));
    }
}
