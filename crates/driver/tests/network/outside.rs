//! The world beyond the machine, and what goes there and comes from there.

use std::net::{Ipv4Addr, TcpListener};

use tarn_driver::local::network::Network;

use crate::machine::{Cluster, Namespace, command, on_a_machine, wait_until};
use crate::probes::{caller_seen, connects, connects_from, listen};

const OURS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
pub(crate) const THEIRS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Another machine on a cable. It also plays a cloud's metadata service, and knows a way back to all that is private.
pub(crate) struct Outside {
    pub(crate) namespace: Namespace,
}

impl Outside {
    pub(crate) fn new() -> Outside {
        let namespace = Namespace::new();
        command(&format!("ip link add uplink type veth peer name cable netns {}", namespace.pid()));
        command(&format!("ip address add {OURS}/24 dev uplink"));
        command("ip link set uplink up");
        command(&format!("ip route add {METADATA}/32 via {THEIRS}"));
        namespace.command(&format!("ip address add {THEIRS}/24 dev cable"));
        namespace.command(&format!("ip address add {METADATA}/32 dev cable"));
        namespace.command("ip link set cable up");
        namespace.command(&format!("ip route add 10.0.0.0/8 via {OURS}"));
        let is_up = |text: String| text.contains("state UP");
        wait_until(|| is_up(command("ip -o link show uplink")) && is_up(namespace.command("ip -o link show cable")));
        Outside { namespace }
    }
}

#[test]
fn instances_go_out_with_the_address_of_the_machine() {
    on_a_machine(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let listener = outside.namespace.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
        assert_eq!(caller_seen(&listener, &cluster.nodes[0].1, THEIRS), OURS);
    });
}

#[test]
fn metadata_services_are_for_the_host() {
    on_a_machine(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let port = outside.namespace.run(listen);
        assert!(connects(METADATA, port));
        assert!(connects_from(&cluster.nodes[0].1, THEIRS, port));
        assert!(!connects_from(&cluster.nodes[0].1, METADATA, port));
    });
}

#[test]
fn nobody_comes_in() {
    on_a_machine(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let outside = Outside::new();
        let (address, node) = &cluster.nodes[0];
        let port = node.run(listen);
        assert!(connects(*address, port));
        assert!(!connects_from(&outside.namespace, *address, port));
        network.remove_base().await.unwrap();
        assert!(connects_from(&outside.namespace, *address, port), "it was the firewall that kept them out");
    });
}
