//! Raw frames with arbitrary contents, as a malicious node may send them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

/// `ETH_P_ALL` of packet sockets.
const EVERYTHING: u16 = 3;

/// The hardware address that the driver gives to the node with this address.
pub(crate) fn hardware_address(address: std::net::Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x54, a, b, c, d]
}

/// A frame of a protocol from one hardware address to another.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], protocol: u16, content: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &protocol.to_be_bytes()[..], content].concat()
}

/// A packet socket on `eth0` in the namespace of the calling thread.
pub(crate) struct Wire(OwnedFd);

impl Wire {
    pub(crate) fn new() -> Wire {
        let protocol = Protocol::from_raw(u32::from(EVERYTHING.to_be()).try_into().unwrap());
        let wire = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::NONBLOCK, Some(protocol)).unwrap();
        let name = c"eth0";
        // SAFETY: the name is a terminated string, which is only read.
        #[allow(unsafe_code, reason = "no library that is used here asks for the index of an interface")]
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        // SAFETY: an address of zeros is valid.
        #[allow(unsafe_code, reason = "addresses of frames are not in the libraries that are used here")]
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        address.sll_protocol = EVERYTHING.to_be();
        address.sll_ifindex = i32::try_from(index).unwrap();
        let length = u32::try_from(size_of_val(&address)).unwrap();
        // SAFETY: the address lives until the call returns, and its length is passed.
        #[allow(unsafe_code, reason = "addresses of frames are not in the libraries that are used here")]
        let bound = unsafe { libc::bind(wire.as_raw_fd(), (&raw const address).cast(), length) };
        assert_eq!(bound, 0, "{}", io::Error::last_os_error());
        Wire(wire)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        assert_eq!(rustix::io::write(&self.0, frame).unwrap(), frame.len());
    }

    /// Returns all frames that came in or went out since the last call.
    pub(crate) fn seen(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut buffer = [0; 2048];
        while let Ok(length) = rustix::io::read(&self.0, &mut buffer) {
            frames.push(buffer[..length].to_vec());
        }
        frames
    }
}
