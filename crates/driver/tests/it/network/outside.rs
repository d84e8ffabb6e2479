//! Other hosts, and the traffic to and from them.

use std::net::{Ipv4Addr, TcpListener};

use tarn_driver::local::Protections;
use tarn_driver::local::network::{Network, Policy};

use crate::network::host::{Cluster, Namespace, command, on_test_host, wait_until};
use crate::network::probes::{caller_seen, connects, connects_from, is_cut_off_from, listen};

const OURS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const THEIRS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The metadata services of clouds.
const METADATA: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// A network of the operator that tenants must not reach.
const OFFICE: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 7);
/// Addresses in the other private networks; a route of the host leads to them.
const PRIVATE: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 7, 7, 7), Ipv4Addr::new(172, 31, 7, 7), Ipv4Addr::new(100, 127, 7, 7)];

/// Another host. It also plays the metadata services and the operator's network, and has routes back to all private
/// addresses.
pub(crate) struct Outside {
    pub(crate) namespace: Namespace,
}

impl Outside {
    pub(crate) fn new() -> Outside {
        let namespace = Namespace::new();
        command(&format!("ip link add uplink type veth peer name cable netns {}", namespace.pid()));
        command(&format!("ip address add {OURS}/24 dev uplink"));
        command("ip link set uplink up");
        namespace.command(&format!("ip address add {THEIRS}/24 dev cable"));
        for address in METADATA.iter().chain([&OFFICE]).chain(&PRIVATE) {
            command(&format!("ip route add {address}/32 via {THEIRS}"));
            namespace.command(&format!("ip address add {address}/32 dev cable"));
        }
        namespace.command("ip link set cable up");
        namespace.command(&format!("ip route add 10.0.0.0/8 via {OURS}"));
        let is_up = |text: String| text.contains("state UP");
        wait_until(|| is_up(command("ip -o link show uplink")) && is_up(namespace.command("ip -o link show cable")));
        Outside { namespace }
    }
}

#[test]
fn instances_go_out_with_the_host_address() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let listener = outside.namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        assert_eq!(caller_seen(&listener, &cluster.nodes[0].1, THEIRS), OURS);
    });
}

#[test]
fn instances_cannot_reach_metadata_services() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let port = outside.namespace.run(listen);
        assert!(connects_from(&cluster.nodes[0].1, THEIRS, port));
        for service in METADATA {
            assert!(connects(service, port), "{service}");
            assert!(is_cut_off_from(&cluster.nodes[0].1, service, port), "{service}");
        }
    });
}

/// In one cloud the metadata service has the same address as the name server.
#[test]
fn name_server_of_every_cloud_is_reachable() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let service = METADATA[1];
        outside.namespace.run(move || {
            let listener = TcpListener::bind((service, 53)).unwrap();
            std::thread::spawn(move || for _ in listener.incoming() {});
        });
        assert!(connects_from(&cluster.nodes[0].1, service, 53));
    });
}

#[test]
fn denied_networks_are_unreachable() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 2).await;
        let outside = Outside::new();
        let port = outside.namespace.run(listen);
        let [(_, node), (peer_address, peer)] = &cluster.nodes[..] else { panic!() };
        assert!(connects_from(node, OFFICE, port), "only listed networks are denied");
        // Denied networks may overlap each other, the metadata services and the addresses of the clusters.
        let denied = ["192.168.0.0/16", "192.168.7.7", "10.0.0.0/8", "169.254.0.0/16"];
        let denied = denied.map(|network| network.parse().unwrap()).to_vec();
        apply_policy(&network, &cluster, Policy { denied, ..Policy::default() }).await;
        assert!(connects(OFFICE, port) && connects_from(node, THEIRS, port));
        assert!(is_cut_off_from(node, OFFICE, port));
        let peer_port = peer.run(listen);
        assert!(connects_from(node, *peer_address, peer_port) && connects(*peer_address, peer_port));
    });
}

#[test]
fn instances_are_unreachable_from_outside() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let (address, node) = &cluster.nodes[0];
        let port = node.run(listen);
        assert!(connects(*address, port));
        assert!(is_cut_off_from(&outside.namespace, *address, port));
        network.remove_base().await.unwrap();
        assert!(connects_from(&outside.namespace, *address, port), "without the firewall they connect");
    });
}

/// Private networks are closed except for the host's name servers and what is allowed; an allowed port opens no other port; denied beats allowed.
#[test]
fn private_networks_are_closed() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 2).await;
        let outside = Outside::new();
        let (port, other) = (outside.namespace.run(listen), outside.namespace.run(listen));
        let [(_, node), (peer_address, peer)] = &cluster.nodes[..] else { panic!() };
        let private = || PRIVATE.into_iter().chain([OFFICE]);
        for address in private() {
            assert!(connects_from(node, address, port), "{address} is open by default");
        }
        let closed = Policy { closes_private: true, ..Policy::default() };
        apply_policy(&network, &cluster, closed.clone()).await;
        for address in private() {
            assert!(connects(address, port) && is_cut_off_from(node, address, port), "{address}");
        }
        assert!(connects_from(node, THEIRS, port), "the internet stays open");
        outside.namespace.run(|| {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 53)).unwrap();
            std::thread::spawn(move || for _ in listener.incoming() {});
        });
        assert!(connects_from(node, OFFICE, 53), "the host's name server stays open");
        assert!(connects(PRIVATE[0], 53) && is_cut_off_from(node, PRIVATE[0], 53), "other name servers do not");
        let peer_port = peer.run(listen);
        assert!(connects_from(node, *peer_address, peer_port) && connects(*peer_address, peer_port));
        let allowed = vec![format!("{OFFICE}:{port}").parse().unwrap(), "10.7.0.0/16".parse().unwrap()];
        apply_policy(&network, &cluster, Policy { allowed, ..closed.clone() }).await;
        assert!(connects_from(node, OFFICE, port) && is_cut_off_from(node, OFFICE, other));
        assert!(connects_from(node, PRIVATE[0], port) && connects_from(node, PRIVATE[0], other));
        assert!(is_cut_off_from(node, PRIVATE[1], port), "what is not allowed stays closed");
        let (allowed, denied) = (vec!["192.168.7.7".parse().unwrap()], vec!["192.168.0.0/16".parse().unwrap()]);
        apply_policy(&network, &cluster, Policy { allowed, denied, ..closed }).await;
        assert!(is_cut_off_from(node, OFFICE, port), "denied beats allowed");
    });
}

/// Opens the network again as an engine with another configuration does.
async fn apply_policy(network: &Network, cluster: &Cluster, policy: Policy) {
    let nodes = cluster.nodes.iter().map(|(address, _)| *address).collect();
    let again = Network::open("aaaaaa", Some(network.prefix())).await.unwrap();
    let again = again.with(nodes, Protections::default()).with_policy(policy).with_name_servers(|| vec![OFFICE]);
    again.restore_isolation().await.unwrap();
}
