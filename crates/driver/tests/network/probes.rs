//! Small questions over the network: does a connection, a datagram, an echo come through. "No" means that nothing came within
//! a time that is long for two namespaces of one machine; every such answer in the tests stands beside a "yes" that shows
//! that the question can be answered otherwise.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};

use crate::machine::Namespace;

const PATIENCE: Duration = Duration::from_millis(400);

/// Listens on all addresses, and answers every connection by hanging up.
pub(crate) fn listen() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || for _ in listener.incoming() {});
    port
}

/// Whether a connection to that address can be opened from here.
pub(crate) fn connects(address: Ipv4Addr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((address, port)), PATIENCE).is_ok()
}

/// Whether a connection can be opened from inside of a namespace.
pub(crate) fn connects_from(namespace: &Namespace, address: Ipv4Addr, port: u16) -> bool {
    namespace.run(move || connects(address, port))
}

/// Opens a connection from inside, and says who the listener thinks has called.
pub(crate) fn caller_seen(listener: &TcpListener, from: &Namespace, address: Ipv4Addr) -> IpAddr {
    let port = listener.local_addr().unwrap().port();
    let connect = move || TcpStream::connect_timeout(&SocketAddr::from((address, port)), PATIENCE);
    let _connection = from.run(connect).unwrap();
    listener.accept().unwrap().1.ip()
}

/// A socket on which datagrams may arrive.
pub(crate) fn receiver() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

/// Sends a datagram with that source address; the kernel may refuse to.
pub(crate) fn send(from: Ipv4Addr, to: Ipv4Addr, port: u16) {
    let _ = UdpSocket::bind((from, 0)).unwrap().send_to(b"hello", (to, port));
}

/// Whether a datagram arrives.
pub(crate) fn arrives(receiver: &UdpSocket) -> bool {
    match receiver.recv_from(&mut [0; 16]) {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// Whether an address answers to an echo request.
pub(crate) fn echoes(address: Ipv4Addr) -> bool {
    let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)).unwrap();
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
    // Type 8, code 0, and the checksum of a message that has nothing else in it.
    let request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    if sendto(&socket, &request, SendFlags::empty(), &SocketAddr::from((address, 0))).is_err() {
        return false;
    }
    let mut buffer = [0; 256];
    // A raw socket also hears the request when it goes to this machine itself; the answer has the type 0 behind the header.
    while let Ok((_, length)) = recv(&socket, &mut buffer[..], RecvFlags::empty()) {
        if length > 20 && buffer[20] == 0 && buffer[12..16] == address.octets() {
            return true;
        }
    }
    false
}
