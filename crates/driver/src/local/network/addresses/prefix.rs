//! The address plan: the prefix of an installation, the slots in it, the nodes in a slot; and subnets as people write
//! them.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// How many clusters an installation can have.
pub(in crate::local::network) const SLOTS: u16 = 1024;
/// The length of a slot's network prefix.
pub(in crate::local::network) const SLOT_LENGTH: u8 = 26;
/// The length of an installation's network prefix.
pub(in crate::local::network) const LENGTH: u8 = 16;
const SLOT_SIZE: u32 = 1 << (32 - SLOT_LENGTH);

/// The 65,536 addresses of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(Ipv4Addr);

impl Prefix {
    /// Returns the prefix that contains an address.
    pub fn of(address: Ipv4Addr) -> Prefix {
        let [first, second, ..] = address.octets();
        Prefix(Ipv4Addr::new(first, second, 0, 0))
    }

    /// Returns its first address.
    pub fn start(self) -> Ipv4Addr {
        self.0
    }

    /// Returns all prefixes that an installation may use, its favourite first. Few networks use the middle of
    /// 10.0.0.0/8; the other ranges are for hosts where that whole block is routed elsewhere.
    pub(in crate::local::network) fn candidate_prefixes(number: u32) -> impl Iterator<Item = Prefix> {
        let of = move |first: u8, from: u8, count: u32| {
            (0..count).map(move |step| {
                let offset = u8::try_from((number + step) % count).expect("it is below a count that fits");
                Prefix(Ipv4Addr::new(first, from + offset, 0, 0))
            })
        };
        of(10, 64, 64).chain(of(172, 16, 16))
    }

    /// Returns whether it overlaps the network of `address` with that prefix length.
    pub(in crate::local::network) fn overlaps(self, address: Ipv4Addr, length: u8) -> bool {
        let common = u32::from(length.min(LENGTH));
        let mask = u32::MAX.checked_shl(32 - common).unwrap_or(0);
        u32::from(self.0) & mask == u32::from(address) & mask
    }

    pub(in crate::local::network) fn gateway(self, slot: u16) -> Result<Ipv4Addr, Error> {
        Ok(Ipv4Addr::from(self.slot_start(slot)? + 1))
    }

    pub(in crate::local::network) fn choose_address(
        self,
        slot: u16,
        taken: &BTreeSet<Ipv4Addr>,
    ) -> Result<Ipv4Addr, Error> {
        let start = self.slot_start(slot)?;
        (start + 2..start + SLOT_SIZE - 1)
            .map(Ipv4Addr::from)
            .find(|address| !taken.contains(address))
            .ok_or_else(|| Error::Permanent(format!("no free address: a cluster has at most {} nodes", SLOT_SIZE - 3)))
    }

    /// Refuses an address that no node in this slot can have.
    pub(in crate::local::network) fn check_node_address(self, slot: u16, address: Ipv4Addr) -> Result<(), Error> {
        let start = self.slot_start(slot)?;
        if (start + 2..start + SLOT_SIZE - 1).contains(&u32::from(address)) {
            Ok(())
        } else {
            Err(Error::Permanent(format!("the address {address} is not in the cluster's network")))
        }
    }

    fn slot_start(self, slot: u16) -> Result<u32, Error> {
        if slot < SLOTS {
            Ok(u32::from(self.0) + u32::from(slot) * SLOT_SIZE)
        } else {
            Err(Error::Permanent(format!("there is no network number {slot}")))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{LENGTH}", self.0)
    }
}

pub(in crate::local::network) fn choose_slot(taken: &BTreeSet<u16>) -> Result<u16, Error> {
    (0..SLOTS)
        .find(|slot| !taken.contains(slot))
        .ok_or_else(|| Error::Permanent(format!("no free network: this host already has {SLOTS} clusters")))
}

/// An IPv4 network, such as `10.0.0.0/8`; a single address is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Subnet {
    start: Ipv4Addr,
    length: u8,
}

impl Subnet {
    /// Returns whether an address is in this network.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
        u32::from(address) & mask == u32::from(self.start)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let (address, length) = text.split_once('/').unwrap_or((text, "32"));
        let (Ok(address), Ok(length @ 0..=32)) = (address.parse::<Ipv4Addr>(), length.parse::<u8>()) else {
            return Err(format!("'{text}' is not a network of IPv4 addresses, such as 10.0.0.0/8 or 192.0.2.7"));
        };
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        let start = Ipv4Addr::from(u32::from(address) & mask);
        if start == address {
            Ok(Subnet { start, length })
        } else {
            // Both the address and the network may have been meant.
            Err(format!("'{text}' is not a network: write {start}/{length}, or {address} for the address alone"))
        }
    }
}

impl TryFrom<String> for Subnet {
    type Error = String;

    fn try_from(text: String) -> Result<Subnet, String> {
        text.parse()
    }
}

impl From<Subnet> for String {
    fn from(network: Subnet) -> String {
        network.to_string()
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.start, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_assigned_until_none_is_left() {
        let mut taken = BTreeSet::from([0, 1, 3]);
        assert_eq!(choose_slot(&taken), Ok(2));
        taken.extend(0..SLOTS);
        assert!(matches!(choose_slot(&taken), Err(Error::Permanent(text)) if text.contains("no free network")));
    }

    #[test]
    fn slot_has_sixty_one_nodes() {
        let prefix = Prefix::of(Ipv4Addr::new(10, 70, 9, 9));
        assert_eq!(prefix.to_string(), "10.70.0.0/16");
        assert_eq!(prefix.gateway(5), Ok(Ipv4Addr::new(10, 70, 1, 65)));
        let mut taken = BTreeSet::new();
        while let Ok(address) = prefix.choose_address(5, &taken) {
            prefix.check_node_address(5, address).unwrap();
            assert!(prefix.check_node_address(4, address).is_err());
            taken.insert(address);
        }
        assert_eq!(taken.len(), 61);
        assert_eq!(taken.first(), Some(&Ipv4Addr::new(10, 70, 1, 66)));
        assert_eq!(taken.last(), Some(&Ipv4Addr::new(10, 70, 1, 126)));
        let none = prefix.choose_address(5, &taken);
        assert!(matches!(none, Err(Error::Permanent(text)) if text.contains("no free address")));
        assert_eq!(prefix.gateway(1023), Ok(Ipv4Addr::new(10, 70, 255, 193)));
        assert!(prefix.gateway(1024).is_err());
        for gateway_or_edge in [64, 65, 127] {
            assert!(prefix.check_node_address(5, Ipv4Addr::new(10, 70, 1, gateway_or_edge)).is_err());
        }
    }

    #[test]
    fn overlaps_are_detected() {
        let prefix = Prefix::of(Ipv4Addr::new(10, 70, 0, 0));
        for (address, length, expected) in [
            ([10, 70, 200, 1], 32, true),
            ([10, 70, 0, 0], 16, true),
            ([10, 0, 0, 0], 8, true),
            ([10, 64, 0, 0], 10, true),
            ([0, 0, 0, 0], 0, true),
            ([10, 71, 0, 0], 16, false),
            ([11, 0, 0, 0], 8, false),
            ([10, 69, 255, 255], 32, false),
        ] {
            assert_eq!(prefix.overlaps(Ipv4Addr::from(address), length), expected, "{address:?}/{length}");
        }
    }

    #[test]
    fn candidates_start_at_the_favourite_and_differ() {
        let all: Vec<Prefix> = Prefix::candidate_prefixes(65).collect();
        assert_eq!(all[0].start(), Ipv4Addr::new(10, 65, 0, 0));
        assert_eq!(all.len(), 80);
        assert!(all.iter().enumerate().all(|(index, one)| !all[..index].contains(one)));
        assert!(all.iter().all(|prefix| prefix.start().is_private()));
    }

    #[test]
    fn subnets_are_parsed() {
        for (text, shown) in [("10.0.0.0/8", "10.0.0.0/8"), ("192.0.2.7", "192.0.2.7/32"), ("0.0.0.0/0", "0.0.0.0/0")] {
            assert_eq!(text.parse::<Subnet>().unwrap().to_string(), shown);
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0/8", "fd00::/8", "10.0.0.0/8 accept", "10.0.0.0-10.1.0.0"]
        {
            assert!(wrong.parse::<Subnet>().is_err_and(|why| why.contains("10.0.0.0/8 or")), "{wrong}");
        }
        let contains = |network: &str, address: [u8; 4]| network.parse::<Subnet>().unwrap().contains(address.into());
        assert!(contains("10.0.0.0/8", [10, 255, 0, 1]) && !contains("10.0.0.0/8", [11, 0, 0, 1]));
        assert!(contains("0.0.0.0/0", [192, 0, 2, 7]) && !contains("192.0.2.7", [192, 0, 2, 8]));
        let slip = "10.0.3.7/8".parse::<Subnet>().unwrap_err();
        assert!(slip.contains("write 10.0.0.0/8, or 10.0.3.7"), "{slip}");
    }
}
