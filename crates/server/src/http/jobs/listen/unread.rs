//! Bounds how many bytes of output are in memory for listeners that have not read them yet. A listener without room
//! waits without output: it keeps its place in the log, and none of its bytes.

use tarn_base::fair_share::{FairShare, Permit};
use tarn_model::ids::UserId;
use tarn_model::users::Owner;

/// How much all listeners may have, those of an organization, and those of a user. A client that reads nothing is
/// disconnected after a minute, so that what it has is free again.
const ALL_BYTES: usize = 128 << 20;
const ORGANIZATION_BYTES: usize = 16 << 20;
const USER_BYTES: usize = 8 << 20;

/// More than all listeners may have: what users wait for in their organization must not count for all.
const ANY_BYTES: usize = usize::MAX >> 4;

/// The room for output that was not read. A listener acquires it of its user first, then of its organization, and that
/// of all last, so that one that waits has nothing that other tenants want.
pub(in crate::http::jobs) struct UnreadBytes {
    users: FairShare<UserId>,
    organizations: FairShare<String>,
}

/// Room for some output, free again on drop.
#[must_use = "the room is free again on drop"]
pub(super) struct Room {
    bytes: usize,
    _user: Permit<UserId>,
    _organization: Permit<String>,
}

impl Default for UnreadBytes {
    fn default() -> Self {
        UnreadBytes::new(ALL_BYTES, ORGANIZATION_BYTES, USER_BYTES)
    }
}

impl UnreadBytes {
    fn new(all: usize, per_organization: usize, per_user: usize) -> Self {
        UnreadBytes { users: FairShare::new(ANY_BYTES, per_user), organizations: FairShare::new(all, per_organization) }
    }

    /// Returns room for a number of bytes, if there is so much.
    pub(super) fn try_acquire(&self, owner: &Owner, bytes: usize) -> Option<Room> {
        let user = self.users.try_acquire(&owner.user, bytes).ok()?;
        let organization = self.organizations.try_acquire(&owner.scope().to_owned(), bytes).ok()?;
        Some(Room::new(bytes, user, organization))
    }

    /// Waits for room. More than a share is the whole share.
    pub(super) async fn acquire(&self, owner: &Owner, bytes: usize) -> Room {
        let user = self.users.acquire(&owner.user, bytes).await;
        let organization = self.organizations.acquire(&owner.scope().to_owned(), bytes).await;
        Room::new(bytes, user, organization)
    }
}

impl Room {
    fn new(bytes: usize, user: Permit<UserId>, organization: Permit<String>) -> Room {
        metrics::gauge!("tarn_listener_unread_bytes").increment(bytes as f64);
        Room { bytes, _user: user, _organization: organization }
    }

    /// Returns how many bytes there is room for.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        metrics::gauge!("tarn_listener_unread_bytes").decrement(self.bytes as f64);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn owner(user: &str, org: Option<&str>) -> Owner {
        Owner { user: user.parse().unwrap(), org: org.map(|org| org.parse().unwrap()) }
    }

    /// Neither a user nor an organization takes all room, and one that waits gets what is free again.
    #[tokio::test]
    async fn no_user_takes_all_room() {
        let unread = UnreadBytes::new(100, 40, 30);
        let (ann, bob) =
            (owner("u-000000000001", Some("o-000000000001")), owner("u-000000000002", Some("o-000000000001")));
        let other = owner("u-000000000003", None);
        let first = unread.try_acquire(&ann, 30).unwrap();
        assert!(unread.try_acquire(&ann, 1).is_none(), "a user has a share");
        let second = unread.try_acquire(&bob, 10).unwrap();
        assert!(unread.try_acquire(&bob, 1).is_none(), "the users of an organization share as well");
        assert!(unread.try_acquire(&other, 30).is_some(), "another tenant is not affected");
        let mut waiting = Box::pin(unread.acquire(&bob, 15));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(waiting.now_or_never().unwrap().bytes(), 15);
        drop(second);
    }

    /// An organization takes no more than its share, however many of its users wait for room.
    #[tokio::test]
    async fn waiting_users_take_nothing_of_others() {
        let unread = UnreadBytes::new(100, 40, 30);
        let member = |number: usize| owner(&format!("u-{number:012}"), Some("o-000000000001"));
        let _held = [30, 10].map(|bytes| unread.try_acquire(&member(bytes), bytes).unwrap());
        let members: Vec<_> = (1..=9).map(member).collect();
        let mut waiting: Vec<_> = members.iter().map(|member| Box::pin(unread.acquire(member, 30))).collect();
        for waits in &mut waiting {
            assert!(waits.as_mut().now_or_never().is_none());
        }
        let others = [(11, None), (12, Some("o-000000000002"))];
        let rooms = others.map(|(user, org)| unread.try_acquire(&owner(&format!("u-{user:012}"), org), 30));
        assert!(rooms.iter().all(Option::is_some), "other tenants have their shares");
    }
}
