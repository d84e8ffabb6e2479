//! Probes of the network: whether a connection, a datagram or an echo gets through. Expected packets are waited for as
//! long as a busy host may take, including a retransmission. For the absence of packets a short wait is enough between
//! two namespaces of one host; each such check in the tests stands beside one that succeeds, which proves that the
//! probe works.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};

use crate::network::host::Namespace;

/// The timeout for expected packets.
const LONG: Duration = Duration::from_secs(30);
/// The wait for the absence of packets.
const SHORT: Duration = Duration::from_millis(400);

/// Listens on all addresses, and closes every connection at once.
pub(crate) fn listen() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || for _ in listener.incoming() {});
    port
}

/// Returns whether a connection to that address can be opened from here.
pub(crate) fn connects(address: Ipv4Addr, port: u16) -> bool {
    connect(address, port, LONG).is_ok()
}

/// Returns whether no connection to that address can be opened from here.
pub(crate) fn is_cut_off(address: Ipv4Addr, port: u16) -> bool {
    connect(address, port, SHORT).is_err()
}

fn connect(address: Ipv4Addr, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::from((address, port)), timeout)
}

/// Returns whether a connection can be opened from inside of a namespace.
pub(crate) fn connects_from(namespace: &Namespace, address: Ipv4Addr, port: u16) -> bool {
    namespace.run(move || connects(address, port))
}

/// Returns whether no connection can be opened from inside of a namespace.
pub(crate) fn is_cut_off_from(namespace: &Namespace, address: Ipv4Addr, port: u16) -> bool {
    namespace.run(move || is_cut_off(address, port))
}

/// Opens a connection from inside, and returns the source address that the listener sees.
pub(crate) fn caller_seen(listener: &TcpListener, from: &Namespace, address: Ipv4Addr) -> IpAddr {
    let port = listener.local_addr().unwrap().port();
    let _connection = from.run(move || connect(address, port, LONG)).unwrap();
    listener.accept().unwrap().1.ip()
}

/// Opens a socket for datagrams.
pub(crate) fn receiver() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// Sends a datagram with that source address; the kernel may refuse to.
pub(crate) fn send(from: Ipv4Addr, to: Ipv4Addr, port: u16) {
    let _ = UdpSocket::bind((from, 0)).unwrap().send_to(b"hello", (to, port));
}

/// Returns whether a datagram arrives.
pub(crate) fn arrives(receiver: &UdpSocket) -> bool {
    comes(receiver, LONG)
}

/// Returns whether no datagram arrives.
pub(crate) fn stays_away(receiver: &UdpSocket) -> bool {
    !comes(receiver, SHORT)
}

fn comes(receiver: &UdpSocket, timeout: Duration) -> bool {
    receiver.set_read_timeout(Some(timeout)).unwrap();
    match receiver.recv_from(&mut [0; 16]) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// Returns whether an address replies to an echo request.
pub(crate) fn echoes(address: Ipv4Addr) -> bool {
    answers(address, LONG)
}

/// Returns whether an address does not reply to an echo request.
pub(crate) fn is_silent(address: Ipv4Addr) -> bool {
    !answers(address, SHORT)
}

fn answers(address: Ipv4Addr, timeout: Duration) -> bool {
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(timeout)).unwrap();
    // Type 8, code 0, and the checksum of an otherwise empty message.
    let request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    if sendto(&socket, &request, SendFlags::empty(), &SocketAddr::from((address, 0))).is_err() {
        return false;
    }
    let mut buffer = [0; 256];
    // A raw socket also receives the request when it goes to this host itself; the reply has type 0 after the header.
    while let Ok((_, length)) = recv(&socket, &mut buffer[..], RecvFlags::empty()) {
        if length > 20 && buffer[20] == 0 && buffer[12..16] == address.octets() {
            return true;
        }
    }
    false
}
