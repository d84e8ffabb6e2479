//! Bounds the number of open WebSockets, which the limit of connections no longer counts after the upgrade.
//! Unauthenticated sockets have their own permits, so that they cannot take those of users, and no user can take all.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::StatusCode;
use tarn_base::fair_share::{FairShare, GroupedPermit, GroupedShare, GroupedUsedUp, Permit, UsedUp};
use tarn_model::ids::{OrgId, UserId};
use tarn_model::users::Owner;

use crate::http::jobs::listen::UnreadBytes;
use crate::http::jobs::push::MatchTurns;
use crate::http::output::failure::Failure;
use crate::serve::network_of;

/// How many sockets of one address may be without a key.
const UNAUTHENTICATED_PER_ADDRESS: usize = 64;

/// How many bodies of one address are read after a refusal at the same time. A refused call needs no key, so the others
/// end at once.
const DISCARDS_PER_ADDRESS: usize = 8;

/// The permits of all WebSockets.
pub(crate) struct SocketLimits {
    /// For sockets whose client has not sent its key, by address.
    unauthenticated: FairShare<IpAddr>,
    /// For calls whose body is read after a refusal, by address.
    discards: FairShare<IpAddr>,
    /// For sockets that push jobs; each may send the names of a million files.
    pub(in crate::http::jobs) pushes: UserPermits,
    /// For sockets that listen to jobs, and for calls that wait for a log.
    pub(in crate::http::jobs) listeners: UserPermits,
    /// For output that listeners have not read yet.
    pub(in crate::http::jobs) unread: UnreadBytes,
    /// For lists of files that are matched.
    pub(in crate::http::jobs) matching: MatchTurns,
}

impl Default for SocketLimits {
    fn default() -> Self {
        SocketLimits {
            unauthenticated: FairShare::new(1024, UNAUTHENTICATED_PER_ADDRESS),
            discards: FairShare::new(128, DISCARDS_PER_ADDRESS),
            pushes: UserPermits::new("pushes", 256, 8),
            listeners: UserPermits::new("listeners", 8192, 2048),
            unread: UnreadBytes::default(),
            matching: MatchTurns::default(),
        }
    }
}

impl SocketLimits {
    /// Acquires a permit to read the body of a refused call from this address, if there is one.
    pub(in crate::http::jobs) fn acquire_discard(&self, address: Option<IpAddr>) -> Option<Permit<IpAddr>> {
        self.discards.try_acquire(&network_of(address?), 1).ok()
    }

    /// Acquires a permit for a socket from this address that is not authenticated yet.
    pub(in crate::http::jobs) fn acquire_unauthenticated(
        &self,
        address: Option<IpAddr>,
    ) -> Result<Permit<IpAddr>, Failure> {
        // Without a network there is no address; such calls share one.
        let network = network_of(address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
        self.unauthenticated.try_acquire(&network, 1).map_err(|used_up| match used_up {
            UsedUp::Share => {
                let message = "too many WebSockets from your address have not sent their key; try again in a moment";
                let failure = Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sockets", message);
                Failure { retry_after: Some(1), ..failure }
            }
            UsedUp::Total => no_permit_left(),
        })
    }
}

/// Permits of one kind, for authenticated users. An organization has at most half of them, however many users it has.
pub(in crate::http::jobs) struct UserPermits {
    what: &'static str,
    per_user: usize,
    per_organization: usize,
    permits: GroupedShare<UserId, OrgId>,
}

impl UserPermits {
    fn new(what: &'static str, all: usize, per_user: usize) -> Self {
        let per_organization = all / 2;
        UserPermits { what, per_user, per_organization, permits: GroupedShare::new(all, per_user, per_organization) }
    }

    /// Acquires a permit for this user.
    pub(in crate::http::jobs) fn acquire(&self, user: &Owner) -> Result<GroupedPermit<UserId, OrgId>, Failure> {
        self.permits.try_acquire(Some(&user.user), user.org.as_ref()).map_err(|used_up| {
            let (subject, count) = match used_up {
                GroupedUsedUp::Member => ("you have", self.per_user),
                GroupedUsedUp::Group => ("the users of your organization have", self.per_organization),
                GroupedUsedUp::Total => return no_permit_left(),
            };
            let message = format!("{subject} {count} {} at the same time, which is the limit; end some", self.what);
            Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_sockets", message)
        })
    }
}

fn no_permit_left() -> Failure {
    let message = "too many WebSockets are open; try again in a moment";
    Failure { retry_after: Some(1), ..Failure::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str, org: Option<&str>) -> Owner {
        Owner { user: id.parse().unwrap(), org: org.map(|org| org.parse().unwrap()) }
    }

    /// No user can take all permits, and every permit is released.
    #[test]
    fn user_cannot_take_all_permits() {
        let permits = UserPermits::new("talks", 3, 2);
        let (one, other) = (user("u-000000000001", None), user("u-000000000002", None));
        let code = |user| permits.acquire(user).err().map(|failure| failure.code);
        let first = permits.acquire(&one).unwrap();
        let second = permits.acquire(&one).unwrap();
        assert_eq!(code(&one), Some("too_many_sockets"));
        let third = permits.acquire(&other).unwrap();
        assert_eq!(code(&other), Some("unavailable"));
        drop(first);
        drop(permits.acquire(&one).unwrap());
        drop((second, third));
        assert!([&one, &one, &other].map(|user| permits.acquire(user)).iter().all(Result::is_ok));
    }

    /// No organization can take all permits, however many users it has.
    #[test]
    fn organization_cannot_take_all_permits() {
        let permits = UserPermits::new("talks", 6, 1);
        let member = |number| user(&format!("u-00000000000{number}"), Some("o-000000000001"));
        let held: Vec<_> = (1..=3).map(|number| permits.acquire(&member(number)).unwrap()).collect();
        let refused = permits.acquire(&member(4)).unwrap_err();
        assert_eq!(refused.code, "too_many_sockets");
        assert!(refused.message.contains("your organization have 3 talks"), "{}", refused.message);
        assert!(permits.acquire(&user("u-000000000008", Some("o-000000000002"))).is_ok());
        assert!(permits.acquire(&user("u-000000000009", None)).is_ok());
        drop(held);
        assert!(permits.acquire(&member(4)).is_ok());
    }

    /// Unauthenticated sockets do not take the permits of users.
    #[test]
    fn unauthenticated_sockets_have_own_permits() {
        let (sockets, user) = (&SocketLimits::default(), user("u-000000000001", None));
        let of = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
        let take_all =
            |last| std::iter::from_fn(move || sockets.acquire_unauthenticated(of(last)).ok()).collect::<Vec<_>>();
        let one = take_all(1);
        assert_eq!(one.len(), UNAUTHENTICATED_PER_ADDRESS, "an address cannot take all");
        assert_eq!(sockets.acquire_unauthenticated(of(1)).err().map(|failure| failure.code), Some("too_many_sockets"));
        let others: Vec<_> = (2..=255).flat_map(take_all).collect();
        assert_eq!(one.len() + others.len(), 1024);
        assert!(sockets.pushes.acquire(&user).is_ok() && sockets.listeners.acquire(&user).is_ok());
        drop((one, others));
        assert!(sockets.acquire_unauthenticated(of(1)).is_ok());
    }
}
