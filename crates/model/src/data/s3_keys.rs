//! Access keys of object storage: how many a user may have, and when a replaced key ends.

use std::time::Duration;

use crate::ids::{OrgId, UserId};
use crate::{Ids, Refused, Time};

/// How many keys of a user may work at a time: one to use, and one to replace it by.
pub const MAX_WORKING: usize = 2;

/// How many keys of a user that no longer work are remembered.
pub const MAX_ENDED: usize = 20;

/// How long a replaced key may keep working.
pub const MAX_OVERLAP: Duration = Duration::from_secs(7 * 24 * 3600);

/// An access key, which belongs to a user and opens the object storage of their organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Key {
    /// What S3 calls the access key id.
    pub id: String,
    pub user: UserId,
    pub org: OrgId,
    pub name: String,
    pub created: Time,
    /// When it was last used; it lags by some seconds.
    pub last_used: Option<Time>,
    /// From when on it does not work; `None` until it is replaced or revoked.
    pub ends: Option<Time>,
    /// Whether it was ended at once. Then it does not work, also where the clock of a replica is behind.
    pub revoked: bool,
}

impl S3Key {
    /// Returns whether the key has not ended.
    pub fn works_at(&self, now: Time) -> bool {
        !self.revoked && self.ends.is_none_or(|ends| ends > now)
    }
}

/// Refuses another key to a user who has this many that work.
pub fn check_limit(working: usize) -> Result<(), Refused> {
    if working < MAX_WORKING { Ok(()) } else { Err(Refused::TooManyS3Keys { limit: MAX_WORKING }) }
}

/// Returns when the keys end that a new key replaces. They end at once, unless the only one that works is kept for a
/// while.
pub fn end_of_replaced(working: usize, keep: Option<Duration>, now: Time) -> Result<Time, Refused> {
    match keep.filter(|keep| !keep.is_zero()) {
        None => Ok(now),
        Some(keep) => check_limit(working).map(|()| now.after(keep.min(MAX_OVERLAP))),
    }
}

/// Returns whether a text can be the id of a key. A database may not even accept another one as a parameter.
pub fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns the id of a new key: `TARN` and 16 characters of 32, the length that clients expect.
pub fn fresh_id(ids: &dyn Ids) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits = [ids.bits(), ids.bits()];
    let random = (0..16).map(|at| char::from(ALPHABET[(bits[at / 8] >> (at % 8 * 5) & 31) as usize]));
    "TARN".chars().chain(random).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_letters_and_digits() {
        assert!(is_id("TARNABCDEFGHIJKLMNOP"));
        for text in ["", "TARN\0", "TARN/", "é", &"A".repeat(65)] {
            assert!(!is_id(text), "{text:?}");
        }
    }

    #[test]
    fn two_keys_are_the_limit() {
        assert_eq!((check_limit(0), check_limit(1)), (Ok(()), Ok(())));
        assert_eq!(check_limit(2), Err(Refused::TooManyS3Keys { limit: 2 }));
    }

    #[test]
    fn replaced_keys_end_at_once_or_within_a_week() {
        let (now, day) = (Time::from_micros(5), Duration::from_secs(24 * 3600));
        for working in 0..=2 {
            assert_eq!(end_of_replaced(working, None, now), Ok(now));
            assert_eq!(end_of_replaced(working, Some(Duration::ZERO), now), Ok(now));
        }
        assert_eq!(end_of_replaced(1, Some(day), now), Ok(now.after(day)));
        assert_eq!(end_of_replaced(1, Some(day * 100), now), Ok(now.after(MAX_OVERLAP)));
        assert_eq!(end_of_replaced(2, Some(day), now), Err(Refused::TooManyS3Keys { limit: 2 }));
    }
}
