//! Sockets that are bound to a path on a device. Each keeps the device busy even after its name is removed, and an open
//! socket does not show where it is bound. The kernel reports it (`sock_diag`) in the network namespace of the
//! instance.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::thread;

use rustix::fs::{fstat, makedev};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How many sockets of an instance are inspected.
const MAX_SOCKETS: usize = 1 << 20;

/// The largest part of the kernel's reply.
const MAX_PART: usize = 64 << 10;

/// Message types: an error, the end of a reply, and the request with its replies.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const BY_FAMILY: u16 = 20;

/// The sockets that are bound to a path on one device.
#[derive(Debug, Default)]
pub(super) struct BoundSockets {
    /// The device of all sockets.
    device: u64,
    numbers: HashSet<u64>,
}

impl BoundSockets {
    /// Finds the sockets in the network namespace of a process. The thread that enters the namespace is created for
    /// this and ends at once: a reused thread would carry the namespace into other work.
    pub(super) fn in_namespace_of(pid: u32, device: u64) -> io::Result<Self> {
        let namespace = File::open(format!("/proc/{pid}/ns/net"))?;
        let work = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            query_bound_sockets(device)
        };
        thread::scope(|scope| {
            let entered = thread::Builder::new().name("tarn-sockets".to_owned()).spawn_scoped(scope, work)?;
            entered.join().unwrap_or_else(|_| Err(io::Error::other("the thread that queries sockets panicked")))
        })
    }

    /// Returns whether an open file is one of the sockets.
    pub(super) fn contains(&self, device: u64, number: u64) -> bool {
        device == self.device && self.numbers.contains(&number)
    }
}

fn query_bound_sockets(device: u64) -> io::Result<BoundSockets> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    send(&socket, &dump_request(), SendFlags::empty())?;
    let mut sockets = BoundSockets { device: fstat(&socket)?.st_dev, numbers: HashSet::new() };
    let mut part = vec![0; MAX_PART];
    let mut left = MAX_SOCKETS;
    loop {
        // The kernel has each part ready before it is read, so there is nothing to wait for.
        let (length, _) = recv(&socket, part.as_mut_slice(), RecvFlags::DONTWAIT)?;
        for (kind, body) in parse_messages(&part[..length]) {
            match kind {
                DONE => return Ok(sockets),
                ERROR => return Err(kernel_error(body)),
                _ if left == 0 => return Ok(sockets),
                _ => sockets.numbers.extend(parse_socket(body).filter(|found| found.1 == device).map(|found| found.0)),
            }
            left -= 1;
        }
    }
}

/// Builds the request for all Unix sockets with a name in the file system, in any state, with the inode of that name.
fn dump_request() -> Vec<u8> {
    const LENGTH: u32 = 40;
    const REQUEST_AND_DUMP: u16 = 0x301;
    const SHOW_VFS: u32 = 2;
    let mut request = Vec::new();
    request.extend(LENGTH.to_ne_bytes());
    request.extend([BY_FAMILY, REQUEST_AND_DUMP].map(u16::to_ne_bytes).as_flattened());
    request.extend([0; 8]);
    request.extend([AddressFamily::UNIX.as_raw().to_ne_bytes()[0], 0, 0, 0]);
    request.extend([u32::MAX, 0, SHOW_VFS, 0, 0].map(u32::to_ne_bytes).as_flattened());
    request
}

/// Splits a part of the reply into messages, each with its type.
fn parse_messages(part: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    parse_records(part, |head| Some((usize::try_from(read_u32(head, 0)?).ok()?, read_u16(head, 4)?)), 16)
}

/// The inode of a socket, and the device on which it is bound.
fn parse_socket(body: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    const VFS_ATTRIBUTE: u16 = 1;
    let socket = read_u32(body, 4);
    let details = parse_records(
        body.get(16..).unwrap_or_default(),
        |head| Some((read_u16(head, 0)?.into(), read_u16(head, 2)?)),
        4,
    );
    details.filter(|(kind, _)| *kind == VFS_ATTRIBUTE).filter_map(move |(_, vfs)| {
        let device = read_u32(vfs, 4)?;
        Some((socket?.into(), makedev(device >> 20, device & 0xf_ffff)))
    })
}

/// Splits bytes into consecutive records that start at multiples of 4, each with a length and a type in a header of
/// this size.
fn parse_records(
    whole: &[u8],
    head: impl Fn(&[u8]) -> Option<(usize, u16)>,
    size: usize,
) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = whole;
    std::iter::from_fn(move || {
        let (length, kind) = head(rest)?;
        let body = rest.get(size..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The kernel's error. It must not look like the error for a process that is gone.
fn kernel_error(body: &[u8]) -> io::Error {
    let code = read_u32(body, 0).map_or(0, |code| code.cast_signed().wrapping_neg());
    io::Error::other(format!("the kernel refused the query for sockets: {}", io::Error::from_raw_os_error(code)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A bound socket is found even after its name is removed.
    #[test]
    fn bound_socket_is_found_without_name() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let device = directory.path().metadata().unwrap().dev();
        let own = fstat(&listener).unwrap();
        std::fs::remove_file(directory.path().join("socket")).unwrap();
        // Only root may enter a namespace, even its own; the query works without.
        let found = query_bound_sockets(device).unwrap();
        assert!(found.contains(own.st_dev, own.st_ino));
        assert!(!found.contains(own.st_dev + 1, own.st_ino), "a file with the same number is none");
        assert!(!query_bound_sockets(u64::MAX).unwrap().contains(own.st_dev, own.st_ino), "it is bound elsewhere");
    }

    /// Bytes that make no sense end the parsing.
    #[test]
    fn nonsense_ends_reply() {
        for nonsense in [&b""[..], b"\x00\x00", &[0; 64], &[255; 64]] {
            assert_eq!(parse_messages(nonsense).count() + parse_socket(nonsense).count(), 0, "{nonsense:?}");
        }
    }
}
