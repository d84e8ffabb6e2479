//! The host's name servers, as far as instances can use them.

use std::fs;
use std::net::Ipv4Addr;

/// The files that list name servers, in order of preference: the second one is of hosts whose own resolver listens on a
/// loopback address.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// Used if only the host itself can reach its name servers.
const PUBLIC: [Ipv4Addr; 2] = [Ipv4Addr::new(9, 9, 9, 9), Ipv4Addr::new(1, 1, 1, 1)];

/// The maximum number of servers; programs use three.
const MAX_SERVERS: usize = 8;

/// Returns the host's current name servers that an instance can reach.
pub(in crate::local) fn find_name_servers() -> Vec<Ipv4Addr> {
    reachable_name_servers(FILES.map(|path| fs::read_to_string(path).unwrap_or_default()))
}

fn reachable_name_servers(texts: [String; 2]) -> Vec<Ipv4Addr> {
    let reachable = |text: &String| -> Vec<Ipv4Addr> {
        let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
        let addresses = servers.filter_map(|rest| rest.trim().parse::<Ipv4Addr>().ok());
        addresses.filter(|address| !address.is_loopback()).take(MAX_SERVERS).collect()
    };
    texts.iter().map(reachable).find(|found| !found.is_empty()).unwrap_or_else(|| PUBLIC.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_name_servers_are_not_passed_on() {
        let found = |own: &str, upstream: &str| reachable_name_servers([own.to_owned(), upstream.to_owned()]);
        let own = "search lan\nnameserver 127.0.0.53\noptions edns0\n";
        assert_eq!(found("nameserver 10.0.0.2\nnameserver ::1\n", ""), [Ipv4Addr::new(10, 0, 0, 2)]);
        assert_eq!(found(own, "nameserver 192.0.2.1\n"), [Ipv4Addr::new(192, 0, 2, 1)]);
        assert_eq!(found(own, ""), PUBLIC);
    }
}
