//! Jumps of the clock that people and programs set. The engine counts time that really passed, and follows the set
//! clock by a rule, so that a jump makes nothing late or early
//! ([decision 29](../../../../docs/decisions/0029-clock.md)).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Time;

/// A smaller difference is no jump: it is corrected slowly.
const JUMP: Duration = Duration::from_secs(2);

/// How much of a small difference is corrected at a time, in microseconds: time never stands still or visibly runs.
const STEP_US: i64 = 5_000;

/// How often in a row a jump must be observed before it is followed, because some programs set the clock twice.
const CONFIRMATIONS: u32 = 3;

/// How many jumps are remembered.
const MAX_JUMPS: usize = 32;

/// After a restart of the host nothing but the set clock says how long it was off. So much of that time counts at most.
const MAX_OFF: Duration = Duration::from_secs(3600);

/// An engine stores its time more often than this.
const MAX_UNSTORED: Duration = Duration::from_secs(3600);

/// How long an operator has to correct a clock before rules that name days go by it.
const MAX_ERROR: Duration = Duration::from_secs(24 * 3600);

/// What the clocks of a host show at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The time of the engine.
    pub now: Time,
    /// The clock that people and programs set.
    pub set: Time,
    /// How long the host has been on, in microseconds, in whatever state it was. Nothing sets this.
    pub up_us: i64,
    /// The boot of the host in which that is counted.
    pub boot: String,
}

impl Reading {
    /// Returns how far the set clock is ahead of the engine, in microseconds.
    pub fn ahead_us(&self) -> i64 {
        self.set.as_micros().saturating_sub(self.now.as_micros())
    }
}

/// Returns how far the clock of a server is ahead of the set clock, in microseconds, at least. The server was asked
/// after the set clock showed `asked`, and before it showed `answered`: a server that answers late is not behind.
pub fn ahead_of_answer(theirs: Time, asked: Time, answered: Time) -> i64 {
    let since = |ours: Time| theirs.as_micros().saturating_sub(ours.as_micros());
    since(answered).max(0) + since(asked).min(0)
}

/// A change of the engine's time that deadlines followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jump {
    /// The time after the jump.
    pub at_us: i64,
    /// By how much the time moved.
    pub by_us: i64,
}

/// What an engine stores of its time, so that the next one continues from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    boot: String,
    up_us: i64,
    time_us: i64,
    jumps: Vec<Jump>,
}

/// How an engine that starts continues the time of its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The time that it is now.
    pub time: Time,
    /// By how much deadlines have to be moved, because nothing says that the time really passed; microseconds.
    pub uncounted_us: i64,
}

impl Anchor {
    /// Returns an anchor of this moment, with the jumps of this one.
    pub fn at(&self, reading: &Reading) -> Anchor {
        let (boot, up_us, time_us) = (reading.boot.clone(), reading.up_us, reading.now.as_micros());
        Anchor { boot, up_us, time_us, jumps: self.jumps.clone() }
    }

    /// Adds a jump, after which it is `at`.
    pub fn with_jump(mut self, at: Time, by_us: i64) -> Anchor {
        self.time_us = at.as_micros();
        self.jumps.push(Jump { at_us: at.as_micros(), by_us });
        let old = self.jumps.len().saturating_sub(MAX_JUMPS);
        self.jumps.drain(..old);
        self
    }

    /// Returns the time that was stored.
    pub fn time(&self) -> Time {
        Time::from_micros(self.time_us)
    }

    /// Returns the jumps, the newest last.
    pub fn jumps(&self) -> &[Jump] {
        &self.jumps
    }

    /// Returns the time with which an engine continues. While the host was on, its count is exact. Otherwise the set
    /// clock counts, but it cannot show less than was stored.
    pub fn resume(&self, reading: &Reading) -> Resumed {
        if self.boot == reading.boot && reading.up_us >= self.up_us {
            let passed = reading.up_us - self.up_us;
            return Resumed { time: Time::from_micros(self.time_us.saturating_add(passed)), uncounted_us: 0 };
        }
        let off = reading.set.as_micros().saturating_sub(self.time_us).max(0);
        let counted = Time::ZERO.after(MAX_OFF).as_micros();
        let time = Time::from_micros(self.time_us.saturating_add(off));
        Resumed { time, uncounted_us: off.saturating_sub(counted).max(0) }
    }

    /// Returns the time such that what happened before it is at least `span` old. Hours that a jump has skipped do not
    /// count; hours that came twice count once, so that nothing is removed too early.
    pub fn passed_before(&self, now: Time, span: Duration) -> Time {
        let before = |limit: Time, jump: &Jump| match jump.by_us {
            skipped @ 1.. if limit.as_micros() < jump.at_us => limit.as_micros().saturating_sub(skipped),
            _ => limit.as_micros(),
        };
        self.jumps
            .iter()
            .rev()
            .fold(self.believed(now).before(span), |limit, jump| Time::from_micros(before(limit, jump)))
    }

    /// Returns the date by which rules that name days remove something. For a day after a jump forward it is that of
    /// the time before, so that an error that is corrected within a day removes nothing.
    pub fn calendar(&self, now: Time) -> Time {
        let now = self.believed(now).as_micros();
        let (mut passed, mut until, mut skipped) = (0_i64, now, 0_i64);
        for jump in self.jumps.iter().rev() {
            passed = passed.saturating_add(until.saturating_sub(jump.at_us));
            if Duration::from_micros(passed.max(0).unsigned_abs()) >= MAX_ERROR {
                break;
            }
            skipped = skipped.saturating_add(jump.by_us);
            until = jump.at_us.saturating_sub(jump.by_us);
        }
        Time::from_micros(now.saturating_sub(skipped.max(0)))
    }

    /// What is removed stays removed, so a time that no engine has stored is not believed.
    fn believed(&self, now: Time) -> Time {
        if self.time_us == 0 { now } else { now.min(self.time().after(MAX_UNSTORED)) }
    }
}

/// What is to be done about a difference between the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// The engine's time is right, or it is too early to say that it is not.
    None,
    /// The engine's time is corrected by so many microseconds, which nothing notices.
    Step(i64),
    /// The set clock jumped: the engine's time and all deadlines move by so many microseconds.
    Jump(i64),
}

/// Judges the differences that are observed one after the other.
#[derive(Debug, Default)]
pub struct Judge {
    seen: Option<(i64, u32)>,
}

impl Judge {
    /// Returns what is to be done about this difference.
    pub fn judge(&mut self, ahead_us: i64) -> Correction {
        let is_jump = |us: i64| Duration::from_micros(us.unsigned_abs()) >= JUMP;
        if !is_jump(ahead_us) {
            self.seen = None;
            return match ahead_us.clamp(-STEP_US, STEP_US) {
                0 => Correction::None,
                step => Correction::Step(step),
            };
        }
        let times = match self.seen {
            Some((before, times)) if !is_jump(before.saturating_sub(ahead_us)) => times + 1,
            _ => 1,
        };
        self.seen = Some((ahead_us, times));
        if times < CONFIRMATIONS {
            return Correction::None;
        }
        self.seen = None;
        Correction::Jump(ahead_us)
    }

    /// Returns whether a jump was seen that is not confirmed yet.
    pub fn is_new_jump(&self) -> bool {
        self.seen.is_some_and(|(_, times)| times == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;

    fn reading(boot: &str, up: i64, now: i64, set: i64) -> Reading {
        Reading { now: Time::from_micros(now), set: Time::from_micros(set), up_us: up, boot: boot.to_owned() }
    }

    /// A server that answers late has no other time.
    #[test]
    fn late_answer_is_no_difference() {
        let ahead = |theirs: i64, asked: i64, answered: i64| {
            let [theirs, asked, answered] = [theirs, asked, answered].map(|at| Time::from_micros(DAY + at * SECOND));
            ahead_of_answer(theirs, asked, answered) / SECOND
        };
        assert_eq!([ahead(0, 0, 9), ahead(5, 0, 9), ahead(9, 0, 9)], [0; 3]);
        assert_eq!([ahead(12, 0, 9), ahead(-4, 0, 9), ahead(3, 0, 0)], [3, -4, 3]);
    }

    /// An engine that starts in the same boot counts what passed, whatever the set clock shows.
    #[test]
    fn same_boot_counts_what_passed() {
        let anchor = Anchor::default().at(&reading("a", 50 * SECOND, 100 * DAY, 100 * DAY));
        for set in [0, 90 * DAY, 100 * DAY, 500 * DAY] {
            let resumed = anchor.resume(&reading("a", 60 * SECOND, set, set));
            assert_eq!((resumed.time.as_micros(), resumed.uncounted_us), (100 * DAY + 10 * SECOND, 0), "{set}");
        }
    }

    /// After a restart of the host time does not go back, and at most an hour counts.
    #[test]
    fn restart_of_host_counts_little() {
        let anchor = Anchor::default().at(&reading("a", 5 * DAY, 100 * DAY, 100 * DAY));
        let hour = 3600 * SECOND;
        for (set, time, uncounted) in
            [(0, 100 * DAY, 0), (100 * DAY + hour / 2, 100 * DAY + hour / 2, 0), (103 * DAY, 103 * DAY, 3 * DAY - hour)]
        {
            let resumed = anchor.resume(&reading("b", SECOND, set, set));
            assert_eq!((resumed.time.as_micros(), resumed.uncounted_us), (time, uncounted), "{set}");
        }
        let restored = anchor.resume(&reading("a", SECOND, 101 * DAY, 101 * DAY));
        assert_eq!(restored.time.as_micros(), 101 * DAY, "a count that went back is another one");
    }

    /// Small differences are corrected slowly, and jumps when they stay.
    #[test]
    fn jumps_are_confirmed() {
        let mut judge = Judge::default();
        assert_eq!(judge.judge(0), Correction::None);
        assert_eq!([judge.judge(900), judge.judge(-SECOND)], [Correction::Step(900), Correction::Step(-STEP_US)]);
        assert_eq!([judge.judge(DAY), judge.judge(DAY), judge.judge(0)], [Correction::None; 3], "it was taken back");
        assert_eq!([judge.judge(DAY), judge.judge(2 * DAY)], [Correction::None; 2]);
        assert!(judge.is_new_jump());
        assert_eq!([judge.judge(2 * DAY + 5), judge.judge(2 * DAY)], [Correction::None, Correction::Jump(2 * DAY)]);
        assert_eq!([judge.judge(-DAY), judge.judge(-DAY)], [Correction::None; 2]);
        assert_eq!(judge.judge(-DAY), Correction::Jump(-DAY));
    }

    /// The date of rules follows a jump forward after a day, and a jump that was taken back not at all.
    #[test]
    fn date_follows_jump_after_day() {
        let at = |time: i64| Time::from_micros(time);
        let date = |anchor: &Anchor, now| anchor.at(&reading("a", 0, now, now)).calendar(at(now)).as_micros();
        let jumped = Anchor::default().with_jump(at(140 * DAY), 40 * DAY);
        assert_eq!(date(&jumped, 140 * DAY + DAY / 2), 100 * DAY + DAY / 2);
        assert_eq!(date(&jumped, 141 * DAY), 141 * DAY);
        let corrected = jumped.with_jump(at(100 * DAY + DAY / 2), -40 * DAY);
        assert_eq!(date(&corrected, 100 * DAY + DAY / 2), 100 * DAY + DAY / 2);
        assert_eq!(date(&corrected, 102 * DAY), 102 * DAY);
        let back = Anchor::default().with_jump(at(60 * DAY), -40 * DAY);
        assert_eq!(date(&back, 60 * DAY), 60 * DAY);
    }

    /// Skipped hours make nothing older.
    #[test]
    fn skipped_hours_make_nothing_older() {
        let at = |time: i64| Time::from_micros(time);
        let week = Duration::from_secs(7 * 86_400);
        let jumped = Anchor::default().with_jump(at(140 * DAY), 40 * DAY);
        let limit = |now| jumped.at(&reading("a", 0, now, now)).passed_before(at(now), week).as_micros();
        assert_eq!(limit(141 * DAY), 94 * DAY, "a day has passed since, and six before");
        assert_eq!(limit(150 * DAY), 143 * DAY);
        let back = Anchor::default().with_jump(at(60 * DAY), -40 * DAY);
        assert_eq!(back.at(&reading("a", 0, 61 * DAY, 0)).passed_before(at(61 * DAY), week).as_micros(), 54 * DAY);
        let unstored = Anchor::default().at(&reading("a", 0, 100 * DAY, 0));
        let limit = unstored.passed_before(at(140 * DAY), week).as_micros();
        assert_eq!(limit, 93 * DAY + 3600 * SECOND, "no engine has stored that so much time passed");
        assert_eq!(Anchor::default().passed_before(at(100 * DAY), week).as_micros(), 93 * DAY);
        let many = (0..100).fold(Anchor::default(), |anchor, day| anchor.with_jump(at(day * DAY), DAY));
        assert_eq!(many.jumps().len(), MAX_JUMPS);
    }
}
