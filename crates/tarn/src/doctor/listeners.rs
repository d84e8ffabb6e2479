//! Who listens where: the kernel's tables of sockets, and the processes that have them open.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::running;

/// The state of a socket that listens, in the kernel's tables.
const LISTENS: &str = "0A";

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) address: SocketAddr,
    inode: u64,
}

/// A process that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) pid: u32,
    pub(super) program: String,
}

/// All that listen in this network.
pub(super) fn all() -> Vec<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| parse(table)).collect()
}

impl Listener {
    /// Whether it keeps another from listening at an address.
    pub(super) fn is_in_the_way_of(&self, wanted: SocketAddr) -> bool {
        let (own, other) = (self.address.ip(), wanted.ip());
        self.address.port() == wanted.port() && (own == other || own.is_unspecified() || other.is_unspecified())
    }

    /// Who has it; `None` where this user may not see that.
    pub(super) fn owner(&self) -> Option<Owner> {
        let name = format!("socket:[{}]", self.inode);
        let pid =
            running::processes().find(|pid| running::opens(*pid, |target| target.as_os_str() == name.as_str()))?;
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some(Owner { pid, program: program.trim().to_owned() })
    }
}

/// A table; what is not understood is left out.
fn parse(table: &str) -> Vec<Listener> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let listens = *fields.get(3)? == LISTENS;
        let listener =
            Listener { address: SocketAddr::new(self::address(address)?, port), inode: fields.get(9)?.parse().ok()? };
        listens.then_some(listener)
    };
    table.lines().filter_map(line).collect()
}

/// Words of four bytes, each in the order of the machine.
fn address(hex: &str) -> Option<IpAddr> {
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
    fn tables_of_the_kernel_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1B9E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000 100 0 0 10 0\n\
            1: 0100007F:1B9E 0100007F:ABCD 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000 20 4 30 10 -1\n\
            2: 00000000000000000000000000000000:1BA0 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4713 1 0 100 0 0 10 0\n\
            nonsense\n";
        let found = parse(table);
        let [four, six] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((four.address.to_string().as_str(), four.inode), ("127.0.0.1:7070", 4711));
        assert_eq!(six.address.to_string(), "[::]:7072");
        assert!(
            four.is_in_the_way_of("0.0.0.0:7070".parse().unwrap())
                && !four.is_in_the_way_of("127.0.0.2:7070".parse().unwrap())
        );
        assert!(six.is_in_the_way_of("127.0.0.1:7072".parse().unwrap()), "it takes both kinds of addresses");
    }

    #[test]
    fn this_process_is_found_by_its_socket() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let found = all().into_iter().find(|listener| listener.address == address).unwrap();
        assert_eq!(found.owner().unwrap().pid, std::process::id());
    }
}
