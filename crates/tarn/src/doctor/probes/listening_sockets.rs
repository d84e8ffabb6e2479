//! The listening sockets, from the socket tables of the kernel, and the processes that own them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::engine_state;

/// The state of a listening socket in the tables.
const LISTENS: &str = "0A";

/// A listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct ListeningSocket {
    pub(in crate::doctor) address: SocketAddr,
    inode: u64,
}

/// The process that owns a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct SocketOwner {
    pub(in crate::doctor) pid: u32,
    pub(in crate::doctor) program: String,
}

/// All listening TCP sockets of this network namespace.
pub(in crate::doctor) fn all_listening_sockets() -> Vec<ListeningSocket> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| parse_socket_table(table)).collect()
}

impl ListeningSocket {
    /// Whether the socket prevents another one from listening on an address.
    pub(in crate::doctor) fn blocks(&self, wanted: SocketAddr) -> bool {
        let (own, other) = (self.address.ip(), wanted.ip());
        self.address.port() == wanted.port() && (own == other || own.is_unspecified() || other.is_unspecified())
    }

    /// The owner of the socket; `None` if this user may not see it.
    pub(in crate::doctor) fn owner(&self) -> Option<SocketOwner> {
        let name = format!("socket:[{}]", self.inode);
        let pid = engine_state::process_ids()
            .find(|pid| engine_state::has_open(*pid, |target| target.as_os_str() == name.as_str()))?;
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(SocketOwner { pid, program: program.trim().to_owned() })
    }
}

/// Parses a table; lines that cannot be parsed are left out.
fn parse_socket_table(table: &str) -> Vec<ListeningSocket> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let listens = *fields.get(3)? == LISTENS;
        let listener = ListeningSocket {
            address: SocketAddr::new(parse_ip_address(address)?, port),
            inode: fields.get(9)?.parse().ok()?,
        };
        listens.then_some(listener)
    };
    table.lines().filter_map(line).collect()
}

/// Parses an address: words of four bytes, each in the byte order of the host.
fn parse_ip_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_tables_are_parsed() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100 0 0 10 0\n\
            1: 0100007F:1B9E 0100007F:ABCD 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 20 4 30 10 -1\n\
            2: 00000000000000000000000000000000:1BA0 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4713 1 0 100 0 0 10 0\n\
            nonsense\n";
        let found = parse_socket_table(table);
        let [four, six] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((four.address.to_string().as_str(), four.inode), ("127.0.0.1:7070", 4711));
        assert_eq!(six.address.to_string(), "[::]:7072");
        assert!(four.blocks("0.0.0.0:7070".parse().unwrap()) && !four.blocks("127.0.0.2:7070".parse().unwrap()));
        assert!(six.blocks("127.0.0.1:7072".parse().unwrap()), "it accepts IPv4 and IPv6");
    }

    #[test]
    fn owner_is_found_by_socket() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let found = all_listening_sockets().into_iter().find(|listener| listener.address == address).unwrap();
        assert_eq!(found.owner().unwrap().pid, std::process::id());
    }
}
