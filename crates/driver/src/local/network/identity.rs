//! How the objects of one installation are named and recognised on a host that several engines and other programs
//! share.

use std::net::Ipv4Addr;

use crate::Error;

/// The digits of Crockford base32 in order: each stands for five bits.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 6;

/// The id of an installation, which all names contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    id: String,
    number: u32,
}

impl Identity {
    pub(super) fn new(installation: &str) -> Result<Identity, Error> {
        let id = installation.to_ascii_lowercase();
        let digits: Option<Vec<usize>> =
            id.bytes().map(|byte| DIGITS.iter().position(|digit| *digit == byte)).collect();
        match digits {
            Some(digits) if digits.len() == LENGTH => {
                let number = digits.into_iter().fold(0, |number, digit| number << 5 | digit as u32);
                Ok(Identity { id, number })
            }
            _ => Err(Error::Permanent(format!("an installation's id has {LENGTH} characters of Crockford base32"))),
        }
    }

    /// The id as a number below 2^30, unique to the installation.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// The interface group that marks our interfaces. Unlike an alias it is set in the message that creates the
    /// interface, so a crash leaves no unmarked one. The high bit avoids the small numbers that people use.
    pub(super) fn group(&self) -> u32 {
        0x4000_0000 | self.number
    }

    /// The prefix of all interface names.
    pub(super) fn interfaces(&self) -> String {
        format!("t{}", self.id)
    }

    /// The name of the bridge of a slot.
    pub(super) fn bridge(&self, slot: u16) -> String {
        format!("t{}-{slot}", self.id)
    }

    /// The name of the host's end of the veth pair of an address.
    pub(super) fn veth(&self, address: Ipv4Addr) -> String {
        format!("t{}_{:04x}", self.id, u32::from(address) & 0xffff)
    }

    /// The name of the firewall table.
    pub(super) fn table(&self) -> String {
        format!("tarn_{}", self.id)
    }

    /// The alias of a bridge, for people.
    pub(super) fn alias(&self) -> String {
        format!("tarn {}", self.id)
    }
}

/// Derives the hardware address from an address. It must not change when an instance is restarted: its peers would send
/// to the old one until their caches expire.
pub(super) fn hardware_address(address: Ipv4Addr) -> Vec<u8> {
    [&[0x02, 0x54], address.octets().as_slice()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_names_fit_and_differ() {
        let identity = Identity::new("7ZQ0ab").unwrap();
        let names = [
            identity.bridge(0),
            identity.bridge(1023),
            identity.veth(Ipv4Addr::new(10, 64, 0, 2)),
            identity.veth(Ipv4Addr::new(10, 64, 255, 254)),
        ];
        assert_eq!(names, ["t7zq0ab-0", "t7zq0ab-1023", "t7zq0ab_0002", "t7zq0ab_fffe"]);
        assert!(names.iter().all(|name| name.len() <= 15 && name.starts_with(&identity.interfaces())));
        assert_ne!(identity.group(), Identity::new("7zq0ac").unwrap().group());
        assert_eq!(Identity::new("zzzzzz").unwrap().number(), (1 << 30) - 1);
    }

    #[test]
    fn invalid_ids_are_refused() {
        for wrong in ["", "abc12", "abc1234", "abc12i", "abc12-", "abc1 3", "äbc12"] {
            assert!(matches!(Identity::new(wrong), Err(Error::Permanent(_))), "{wrong:?}");
        }
    }
}
