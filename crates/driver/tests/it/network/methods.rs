//! The methods: what they create, that they may be repeated, and that nothing is left behind.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use futures::future::join_all;
use tarn_driver::Error;
use tarn_driver::local::network::Network;

use crate::network::host::{Cluster, Namespace, command, interfaces, on_test_host, snapshot, wait_until};
use crate::network::probes::{connects, listen};

#[test]
fn all_objects_can_be_removed() {
    on_test_host(|| async {
        let before = snapshot();
        let network = Network::open("aaaaaa", None).await.unwrap();
        assert_eq!(snapshot(), before);
        let clusters = [Cluster::start(&network, 0, 2).await, Cluster::start(&network, 1023, 1).await];
        let made = ["taaaaaa-0", "taaaaaa-1023", "taaaaaa_0002", "taaaaaa_0003", "taaaaaa_ffc2", "tarn_aaaaaa"];
        assert_eq!(network.leftovers().await.unwrap(), made);
        for cluster in clusters {
            cluster.remove(&network).await;
        }
        network.remove_base().await.unwrap();
        assert_eq!(network.leftovers().await.unwrap(), [""; 0]);
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn methods_are_idempotent() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let before = snapshot();
        let cluster = Cluster::start(&network, 3, 1).await;
        let (address, node) = &cluster.nodes[0];
        let port = node.run(listen);
        let inside = || ["ip -o address", "ip route", "ip -o link"].map(command).concat();
        let (made, made_inside) = (snapshot(), node.run(inside));
        network.ensure_base().await.unwrap();
        network.ensure_bridge(3).await.unwrap();
        network.attach(3, *address, node.pid()).await.unwrap();
        assert_eq!(snapshot(), made);
        assert_eq!(node.run(inside), made_inside);
        assert!(connects(*address, port));
        for _ in 0..2 {
            network.detach(3, *address).await.unwrap();
            network.remove_bridge(3).await.unwrap();
            network.remove_base().await.unwrap();
        }
        assert_eq!(snapshot(), before);
    });
}

/// A node has a hardware address derived from its address, a gateway, and a loopback.
#[test]
fn node_has_addresses_and_routes() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 1, 1).await;
        let (address, node) = &cluster.nodes[0];
        let gateway = network.gateway(1).unwrap();
        assert_eq!((*address, gateway), (Ipv4Addr::new(10, 74, 0, 66), Ipv4Addr::new(10, 74, 0, 65)));
        assert!(node.command("ip route").starts_with(&format!("default via {gateway} dev eth0")));
        assert!(node.command("ip -o -4 address show dev eth0").contains(&format!("{address}/26 brd 10.74.0.127")));
        let link = node.command("ip -o link show dev eth0");
        assert!(link.contains("link/ether 02:54:0a:4a:00:42") && link.contains("state UP"), "{link}");
        assert!(node.command("ip -o link show dev lo").contains("LOOPBACK,UP"));
        let bridge = command("ip -d -o link show dev taaaaaa-1");
        for word in ["02:54:0a:4a:00:41", "forward_delay 0", "stp_state 0", "mcast_snooping 0", "alias tarn aaaaaa"] {
            assert!(bridge.contains(word), "{word}: {bridge}");
        }
    });
}

/// A restarted node has a new namespace while the old one may still exist.
#[test]
fn address_moves_with_a_restart() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let (address, old) = &cluster.nodes[0];
        let new = Namespace::instance();
        network.attach(0, *address, new.pid()).await.unwrap();
        let port = new.run(listen);
        assert!(connects(*address, port));
        assert!(!old.run(interfaces).contains(&"eth0".to_owned()));
        drop(new);
        network.detach(0, *address).await.unwrap();
        assert_eq!(network.leftovers().await.unwrap(), ["taaaaaa-0", "tarn_aaaaaa"]);
    });
}

#[test]
fn invalid_input_changes_nothing() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let (address, node) = &cluster.nodes[0];
        let (before, unattached) = (snapshot(), Namespace::instance());
        let permanent = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Permanent(_))), "{result:?}");
        permanent(network.attach(0, network.gateway(0).unwrap(), unattached.pid()).await);
        permanent(network.attach(0, network.address(1, &BTreeSet::new()).unwrap(), unattached.pid()).await);
        permanent(network.attach(0, Ipv4Addr::new(198, 51, 100, 1), unattached.pid()).await);
        permanent(network.ensure_bridge(1024).await);
        let second = network.address(0, &BTreeSet::from([*address])).unwrap();
        let own_namespace = Namespace::sharing();
        permanent(network.attach(0, second, own_namespace.pid()).await);
        let taken = network.attach(0, second, node.pid()).await;
        assert!(taken.is_err(), "an instance has one interface");
        let gone = { Namespace::instance().pid() };
        assert!(matches!(network.attach(0, second, gone).await, Err(Error::Retry(_))));
        let without_bridge = network.address(7, &BTreeSet::new()).unwrap();
        assert!(matches!(network.attach(7, without_bridge, unattached.pid()).await, Err(Error::Retry(_))));
        assert_eq!(snapshot(), before);
    });
}

#[test]
fn fifty_rounds_leave_nothing() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        network.ensure_bridge(0).await.unwrap();
        let before = snapshot();
        let instance = Namespace::instance();
        let inside = instance.run(interfaces);
        for round in 0..50_u32 {
            let taken = (0..round).map(|number| Ipv4Addr::from(u32::from(network.gateway(0).unwrap()) + 1 + number));
            let address = network.address(0, &taken.collect()).unwrap();
            network.attach(0, address, instance.pid()).await.unwrap();
            network.detach(0, address).await.unwrap();
        }
        assert_eq!(snapshot(), before);
        assert_eq!(instance.run(interfaces), inside);
        // An open descriptor would keep the namespace of a dead instance. The thread that enters a namespace closes its
        // descriptor shortly after it has handed over the socket.
        wait_until(|| {
            command("true");
            !instance.is_held()
        });
    });
}

/// A crash may leave objects without a record.
#[test]
fn unrecorded_interfaces_are_swept() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let other = Network::open("baaaab", None).await.unwrap();
        other.ensure_bridge(0).await.unwrap();
        let kept = Cluster::start(&network, 0, 2).await;
        let _lost = Cluster::start(&network, 1, 1).await;
        let known = BTreeSet::from([kept.nodes[0].0]);
        let swept = network.sweep(&BTreeSet::from([0]), &known).await.unwrap();
        assert_eq!(BTreeSet::from_iter(swept), ["taaaaaa-1", "taaaaaa_0003", "taaaaaa_0042"].map(str::to_owned).into());
        assert_eq!(network.leftovers().await.unwrap(), ["taaaaaa-0", "taaaaaa_0002", "tarn_aaaaaa"]);
        assert_eq!(other.leftovers().await.unwrap(), ["tbaaaab-0"]);
        let (address, node) = &kept.nodes[0];
        assert!(connects(*address, node.run(listen)));
    });
}

/// Clusters that are created at the same moment do not take each other's objects for foreign ones.
#[test]
fn many_clusters_at_once() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let before = snapshot();
        let clusters = join_all((0..20).map(|slot| Cluster::start(&network, slot, 1))).await;
        for cluster in &clusters {
            let (address, node) = &cluster.nodes[0];
            assert!(connects(*address, node.run(listen)));
        }
        assert_eq!(network.leftovers().await.unwrap().len(), 41);
        join_all(clusters.into_iter().map(|cluster| cluster.remove(&network))).await;
        network.remove_base().await.unwrap();
        assert_eq!(snapshot(), before);
    });
}
