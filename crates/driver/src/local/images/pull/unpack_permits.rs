//! Who may unpack: a few at once, of all images together. Whoever comes slowly steps aside, so that one slow registry does not keep
//! everybody else waiting.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::Error;

/// How many layers are unpacked at once.
const QUICK: usize = 3;

/// How many more may come slowly beside them.
const SLOW: usize = 8;

/// For so long it is looked how fast a layer comes. Only waiting for the registry counts, not what the disk takes.
const LOOK: Duration = Duration::from_secs(60);

/// Whoever sends less in a second is slow, and whoever sends less than that is as good as silent.
const SLOW_RATE: u64 = 1 << 20;
pub(super) const LEAST_RATE: u64 = 64 << 10;

/// The turns of all pulls.
pub(in crate::local::images) struct Turns {
    quick: Semaphore,
    slow: Semaphore,
}

/// Somebody's turn, for as long as it lives.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    held: SemaphorePermit<'a>,
    is_slow: bool,
    waited: Duration,
    came: u64,
}

/// What is found of a layer that comes too slowly.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TooSlow {
    /// It would never end.
    Silent,
    /// There are too many others like it.
    Crowded,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { quick: Semaphore::new(QUICK), slow: Semaphore::new(SLOW) }
    }
}

impl Turns {
    /// A turn, if nobody has to be waited for.
    pub(super) fn at_once(&self) -> Option<Turn<'_>> {
        self.quick.try_acquire().ok().map(|held| self.turn(held))
    }

    /// A turn, when it comes.
    pub(in crate::local::images) async fn wait(&self) -> Result<Turn<'_>, Error> {
        let held = self.quick.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
        Ok(self.turn(held))
    }

    fn turn<'a>(&'a self, held: SemaphorePermit<'a>) -> Turn<'a> {
        Turn { turns: self, held, is_slow: false, waited: Duration::ZERO, came: 0 }
    }
}

impl Turn<'_> {
    /// Notes that so much came after so long. Whoever is slow gives its turn to somebody else.
    pub(super) fn came(&mut self, bytes: u64, waited: Duration) -> Result<(), TooSlow> {
        self.came += bytes;
        self.waited += waited;
        if self.waited < LOOK {
            return Ok(());
        }
        let rate = std::mem::take(&mut self.came) / std::mem::take(&mut self.waited).as_secs().max(1);
        if rate < LEAST_RATE {
            return Err(TooSlow::Silent);
        }
        if rate < SLOW_RATE && !self.is_slow {
            self.held = self.turns.slow.try_acquire().map_err(|_| TooSlow::Crowded)?;
            self.is_slow = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_slow_lets_others_pass_and_whoever_is_silent_ends() {
        let turns = Turns::default();
        let minute = |turn: &mut Turn<'_>, rate: u64| turn.came(rate * 60, LOOK);
        let mut slow = Vec::new();
        for _ in 0..SLOW {
            let mut turn = turns.at_once().unwrap();
            assert_eq!(minute(&mut turn, SLOW_RATE - 1), Ok(()));
            assert_eq!(minute(&mut turn, LEAST_RATE), Ok(()), "it has stepped aside already");
            slow.push(turn);
        }
        let mut quick: Vec<_> = (0..QUICK).map(|_| turns.at_once().expect("those who are slow have no turn")).collect();
        assert!(turns.at_once().is_none());
        assert_eq!(quick[0].came(0, LOOK / 2), Ok(()), "it is not looked at before its time");
        assert_eq!(minute(&mut quick[1], SLOW_RATE), Ok(()));
        assert_eq!(minute(&mut quick[1], SLOW_RATE - 1), Err(TooSlow::Crowded));
        assert_eq!(minute(&mut quick[2], LEAST_RATE - 1), Err(TooSlow::Silent));
        slow.pop();
        assert_eq!(minute(&mut quick[1], SLOW_RATE - 1), Ok(()));
        assert!(turns.at_once().is_some());
    }
}
