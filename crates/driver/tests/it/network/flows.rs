//! The connection tracking table, which the whole host shares.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;

use tarn_driver::local::network::Network;

use crate::network::host::{Cluster, command, on_test_host};
use crate::network::outside::{Outside, THEIRS};
use crate::network::probes::{connects, is_cut_off, listen};

const BRIDGED_PACKETS: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// For how many seconds an unanswered UDP flow is tracked; per network namespace.
const DATAGRAMS_LAST: &str = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout";

/// More than a node may have.
const MANY: u16 = 17_000;

/// Returns how many tracked flows contain this address.
fn flows(address: Ipv4Addr) -> usize {
    let table = fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap();
    let (from, to) = (format!("src={address} "), format!("dst={address} "));
    table.lines().filter(|line| line.contains(&from) || line.contains(&to)).count()
}

fn has_a_table() -> bool {
    let there = Path::new("/proc/net/nf_conntrack").exists();
    if !there {
        eprintln!("skipped: this kernel does not show its table of flows");
    }
    there
}

/// Two colluding nodes could fill the table, without a socket and for days.
#[test]
fn traffic_between_nodes_is_not_tracked() {
    on_test_host(|| async {
        if !has_a_table() {
            return;
        }
        if Path::new(BRIDGED_PACKETS).exists() {
            fs::write(BRIDGED_PACKETS, "1").unwrap();
        }
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 2).await;
        let [(one, node), (two, peer)] = &cluster.nodes[..] else { panic!() };
        let listener = peer.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let (target, port) = (*two, listener.local_addr().unwrap().port());
        let _kept_open = node.run(move || TcpStream::connect((target, port))).unwrap();
        assert_eq!((flows(*one), flows(*two)), (0, 0));
        let port = node.run(listen);
        assert!(connects(*one, port), "the host reaches it");
        assert_eq!(flows(*one), 1, "and what the host begins is in the table");
    });
}

#[test]
fn outgoing_flows_are_limited_and_removed() {
    on_test_host(|| async {
        if !has_a_table() {
            return;
        }
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 2).await;
        let outside = Outside::new();
        // On a busy host the first flows would expire before the last ones are created.
        fs::write(DATAGRAMS_LAST, "600").unwrap();
        let [(one, greedy), (two, modest)] = &cluster.nodes[..] else { panic!() };
        greedy.run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            for port in 1..MANY {
                // Some kernels report a dropped packet as an error.
                let _ = socket.send_to(b"hello", (THEIRS, port));
            }
        });
        let had = flows(*one);
        assert!((1_000..=16_384).contains(&had), "{had}");
        let listener = outside.namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        let port = listener.local_addr().unwrap().port();
        assert!(greedy.run(move || is_cut_off(THEIRS, port)), "there is no room for one more");
        // It stays open: the kernel soon stops counting for an address whose flows have all ended.
        let _kept_open =
            modest.run(move || TcpStream::connect((THEIRS, port))).expect("the modest one is not hindered");
        assert_eq!(flows(*two), 1);
        network.detach(0, *one).await.unwrap();
        let left = if forgets() { 0 } else { had };
        assert!(flows(*one) <= left && flows(*two) == 1, "what ends with a node are its own flows");
        let again = crate::network::host::Namespace::instance();
        network.attach(0, *one, again.pid()).await.unwrap();
        assert!(again.run(move || connects(THEIRS, port)), "who gets the address next begins anew");
        assert!(command("nft list set inet tarn_aaaaaa flows").contains(&two.to_string()));
    });
}

/// Returns whether this kernel can remove all flows of an address.
fn forgets() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) >= (Some(6), Some(11))
}
