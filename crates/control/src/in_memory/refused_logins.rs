//! Counts refused logins, by where they came from. A reconciler records each group as one event a minute; the number of
//! groups is limited, so that no client can fill the event log by failing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;
use tarn_model::users::User;

/// How many groups are counted apart between two writes. All further ones share a group of their kind.
const MAX_GROUPS: usize = 16;

/// What the refused logins of one group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RefusedGroup {
    /// What refused them: the API, the SSH gateway or S3.
    pub(crate) via: Via,
    /// The code of the refusal.
    pub(crate) reason: &'static str,
    /// The address of the client, or its /64 network; absent if it is not known, or if there are too many.
    pub(crate) address: Option<IpAddr>,
    /// The user of the key and their scope, if the key is known.
    pub(crate) user: Option<(String, String)>,
}

/// What refused a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    Api,
    Ssh,
    S3,
}

impl Via {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Via::Api => "api",
            Via::Ssh => "ssh",
            Via::S3 => "s3",
        }
    }
}

/// The refused logins that are not recorded as events yet.
#[derive(Default)]
pub(crate) struct RefusedLogins(Mutex<HashMap<RefusedGroup, u64>>);

impl RefusedLogins {
    /// Counts a refused login.
    pub(crate) fn count(&self, via: Via, reason: &'static str, address: Option<IpAddr>, user: Option<&User>) {
        let user = user.map(|user| (user.id.to_string(), user.owner().scope().to_owned()));
        let group = RefusedGroup { via, reason, address: address.map(network_of), user };
        let mut groups = self.0.lock();
        let is_new = !groups.contains_key(&group);
        let group = if is_new && groups.len() >= MAX_GROUPS {
            // One group for each kind and reason, of which there are few.
            RefusedGroup { address: None, user: None, ..group }
        } else {
            group
        };
        *groups.entry(group).or_default() += 1;
    }

    /// Takes all groups with their counts, to record them.
    pub(crate) fn take(&self) -> Vec<(RefusedGroup, u64)> {
        std::mem::take(&mut *self.0.lock()).into_iter().collect()
    }

    /// Puts groups back that could not be recorded.
    pub(crate) fn put_back(&self, taken: Vec<(RefusedGroup, u64)>) {
        let mut groups = self.0.lock();
        for (group, count) in taken {
            *groups.entry(group).or_default() += count;
        }
    }
}

/// A client with an IPv6 address usually has a whole /64 network.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many addresses there are, the number of groups is bounded and every refusal is counted.
    #[test]
    fn groups_are_bounded() {
        let refused = RefusedLogins::default();
        for number in 0..10_000_u32 {
            refused.count(Via::Api, "invalid_key", Some(IpAddr::from(number.to_be_bytes())), None);
        }
        let taken = refused.take();
        assert_eq!((taken.len(), taken.iter().map(|(_, count)| count).sum::<u64>()), (MAX_GROUPS + 1, 10_000));
        assert!(refused.take().is_empty());
        refused.count(Via::Ssh, "ssh_key_refused", Some("2001:db8::1".parse().unwrap()), None);
        refused.count(Via::Ssh, "ssh_key_refused", Some("2001:db8::ffff".parse().unwrap()), None);
        assert_eq!(refused.take().remove(0).1, 2, "a network counts as one address");
    }
}
