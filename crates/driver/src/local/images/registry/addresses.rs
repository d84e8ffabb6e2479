//! Which addresses the engine may connect to because a user or a registry named them: public ones, which anybody can
//! reach without the engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::local::network::Subnet;

/// Returns whether an address is public: neither for private or special use, nor denied, nor of this host.
pub(super) fn is_public(address: IpAddr, denied: &[Subnet]) -> bool {
    let is_public = match address {
        IpAddr::V4(address) => is_public_v4(address, denied),
        IpAddr::V6(address) => is_public_v6(address, denied),
    };
    is_public && !is_of_this_host(address)
}

/// The networks for private and special use, by the registry of IANA, with their lengths.
const SPECIAL_V4: [([u8; 4], u32); 16] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 31, 196, 0], 24),
    ([192, 88, 99, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

fn is_public_v4(address: Ipv4Addr, denied: &[Subnet]) -> bool {
    let is_in = |(start, length): &([u8; 4], u32)| {
        let mask = u32::MAX << (32 - length);
        u32::from(address) & mask == u32::from_be_bytes(*start)
    };
    !SPECIAL_V4.iter().any(is_in) && !denied.iter().any(|network| network.contains(address))
}

fn is_public_v6(address: Ipv6Addr, denied: &[Subnet]) -> bool {
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)), denied);
    match address.segments() {
        // IPv4 in another form: mapped, and translated by NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments (Teredo, ORCHID, benchmarks), and documentation.
        [0x2001, 0..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // Everything else that is global unicast; link-local, unique local and multicast addresses are not.
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

/// Returns whether this host has an address: the firewall does not protect the host's services from the engine. Only
/// addresses of the host can be bound, unless a setting allows all; then the kernel's choice of a source tells.
fn is_of_this_host(address: IpAddr) -> bool {
    let no_host_has: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    };
    let can_bind = |address: IpAddr| UdpSocket::bind(SocketAddr::new(address, 0)).is_ok();
    can_bind(address) && (!can_bind(no_host_has) || is_own_source(address))
}

/// Returns whether the kernel would send to an address from that very address. Nothing is sent.
fn is_own_source(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_are_not_public() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.19.0.1",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2002:a00:1::",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
        ] {
            assert!(!is_public(address.parse().unwrap(), &[]), "{address}");
        }
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "126.0.0.1",
            "128.0.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.167.0.1",
            "223.255.255.254",
            "2606:4700::1",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert!(is_public(address.parse().unwrap(), &[]), "{address}");
        }
    }

    #[test]
    fn denied_addresses_are_not_public_in_any_form() {
        let denied = ["8.8.0.0/16".parse().unwrap()];
        for (address, expected) in
            [("8.8.4.4", false), ("::ffff:8.8.4.4", false), ("64:ff9b::8.8.4.4", false), ("8.9.0.1", true)]
        {
            assert_eq!(is_public(address.parse().unwrap(), &denied), expected, "{address}");
        }
    }

    #[test]
    fn own_addresses_are_recognized() {
        assert!(is_of_this_host("127.0.0.1".parse().unwrap()) && is_own_source("127.0.0.1".parse().unwrap()));
        assert!(!is_of_this_host("192.0.2.7".parse().unwrap()) && !is_own_source("192.0.2.7".parse().unwrap()));
    }
}
