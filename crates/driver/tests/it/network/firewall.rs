//! Which connections are possible and which are not.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use tarn_driver::local::network::Network;

use crate::network::host::{Cluster, command, on_test_host};
use crate::network::probes::{
    arrives, connects, connects_from, echoes, is_cut_off_from, is_silent, listen, receiver, send, stays_away,
};

const BRIDGED_PACKETS: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// The kernel may pass bridged packets through the firewall or not; both must have the same result.
#[test]
fn nodes_reach_their_cluster_and_no_other() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let one = Cluster::start(&network, 0, 2).await;
        let two = Cluster::start(&network, 1, 1).await;
        let (here, node) = &one.nodes[0];
        let (peer_address, peer) = &one.nodes[1];
        let (other_address, other) = &two.nodes[0];
        let (peer_port, other_port) = (peer.run(listen), other.run(listen));
        for value in ["0", "1"] {
            if Path::new(BRIDGED_PACKETS).exists() {
                fs::write(BRIDGED_PACKETS, value).unwrap()
            } else {
                eprintln!("this kernel does not send bridged packets through the firewall")
            }
            assert!(connects_from(node, *peer_address, peer_port));
            assert!(is_cut_off_from(node, *other_address, other_port));
            assert!(connects(*other_address, other_port), "the host reaches every instance");
            let (target, here) = (*peer_address, *here);
            assert!(node.run(move || echoes(target)));
            assert!(peer.run(move || echoes(here)));
            let target = *other_address;
            assert!(node.run(move || is_silent(target)));
        }
    });
}

#[test]
fn instances_cannot_reach_the_host() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let one = Cluster::start(&network, 0, 1).await;
        let _two = Cluster::start(&network, 1, 1).await;
        command("ip link add elsewhere type bridge");
        command("ip address add 198.51.100.7/24 dev elsewhere");
        command("ip link set elsewhere up");
        let (address, node) = &one.nodes[0];
        let node_port = node.run(listen);
        assert!(connects(*address, node_port), "what the host opens is answered");
        let port = listen();
        let (socket, datagram_port) = receiver();
        let addresses = [network.gateway(0).unwrap(), network.gateway(1).unwrap(), Ipv4Addr::new(198, 51, 100, 7)];
        for target in addresses {
            assert!(connects(target, port) && echoes(target), "the host reaches itself");
            send(target, target, datagram_port);
            assert!(arrives(&socket));
            assert!(is_cut_off_from(node, target, port), "{target}");
            assert!(node.run(move || is_silent(target)), "{target}");
            let from = *address;
            node.run(move || send(from, target, datagram_port));
            assert!(stays_away(&socket), "{target}");
        }
    });
}

/// A link-local address would bypass every rule about IPv4.
#[test]
fn ipv6_is_disabled() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 1).await;
        let addresses = || fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
        assert!(addresses().lines().all(|line| line.ends_with(" lo")), "{}", addresses());
        let inside = cluster.nodes[0].1.run(addresses);
        assert!(inside.lines().all(|line| line.ends_with(" lo")), "{inside}");
    });
}

/// Packets with a spoofed source address do not arrive.
#[test]
fn spoofed_source_is_dropped() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let one = Cluster::start(&network, 0, 1).await;
        let two = Cluster::start(&network, 1, 1).await;
        let outside = crate::network::outside::Outside::new();
        let (own, node) = &one.nodes[0];
        let (socket, port) = outside.namespace.run(receiver);
        let foreign = [two.nodes[0].0, Ipv4Addr::new(203, 0, 113, 9)];
        for address in foreign {
            node.command(&format!("ip address add {address}/32 dev eth0"));
        }
        for (source, heard) in [(*own, true), (foreign[0], false), (foreign[1], false)] {
            node.run(move || send(source, crate::network::outside::THEIRS, port));
            assert!(if heard { arrives(&socket) } else { stays_away(&socket) }, "{source}");
        }
    });
}

#[test]
fn flushed_firewall_is_restored() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let rules = || command("nft list table inet tarn_aaaaaa");
        network.ensure_base().await.unwrap();
        assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap().trim(), "1");
        let loaded = rules();
        command("nft flush ruleset");
        network.ensure_base().await.unwrap();
        assert_eq!(rules(), loaded);
        // Rules of another version are replaced, and foreign rules stay.
        command("nft flush ruleset");
        command("nft add table inet tarn_aaaaaa");
        command("nft add table inet foreign");
        for _ in 0..2 {
            network.ensure_base().await.unwrap();
            assert_eq!(rules(), loaded);
        }
        network.remove_base().await.unwrap();
        assert_eq!(command("nft list tables").trim(), "table inet foreign");
    });
}

/// Reloading the host's own firewall flushes everything or, table by table, only the rules.
#[test]
fn isolation_is_restored_while_instances_run() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let one = Cluster::start(&network, 0, 2).await;
        let two = Cluster::start(&network, 1, 1).await;
        let (other, node) = (&two.nodes[0], &one.nodes[0].1);
        let port = other.1.run(listen);
        let tables = |listed: &str| {
            let list = |family| command(&format!("nft {listed} list table {family} tarn_aaaaaa"));
            ["inet", "bridge"].map(list).concat()
        };
        let loaded = tables("-n");
        for accident in ["flush ruleset", "flush table inet tarn_aaaaaa", "flush table bridge tarn_aaaaaa"] {
            command(&format!("nft {accident}"));
            network.restore_isolation().await.unwrap();
            assert!(tables("-n") == loaded, "{accident}");
        }
        command("nft flush table inet tarn_aaaaaa");
        assert!(connects_from(node, other.0, port), "without the rules it is open");
        network.restore_isolation().await.unwrap();
        assert!(is_cut_off_from(node, other.0, port));
        let handles = tables("-a");
        network.restore_isolation().await.unwrap();
        assert!(tables("-a") == handles, "what is right is left alone");
        command("bridge link set dev taaaaaa_0003 learning on");
        network.restore_isolation().await.unwrap();
        assert!(command("bridge -d link show dev taaaaaa_0003").contains("learning off"));
    });
}

/// Even within its own cluster a node cannot spoof an address, and reloaded rules contain all nodes.
#[test]
fn nodes_cannot_spoof_within_their_cluster() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 3).await;
        let ((own, node), (target, peer)) = (&cluster.nodes[0], &cluster.nodes[1]);
        let (socket, port) = peer.run(receiver);
        let unused = Ipv4Addr::from(u32::from(cluster.nodes[2].0) + 1);
        let speak = |source: Ipv4Addr| {
            let target = *target;
            node.run(move || send(source, target, port));
        };
        let heard = |source| {
            speak(source);
            arrives(&socket)
        };
        let unheard = |source| {
            speak(source);
            stays_away(&socket)
        };
        for address in [cluster.nodes[2].0, unused] {
            node.command(&format!("ip address add {address}/32 dev eth0"));
        }
        for round in ["as loaded", "after a flush"] {
            assert!(heard(*own), "{round}");
            assert!(unheard(cluster.nodes[2].0) && unheard(unused), "{round}");
            command("nft flush ruleset");
            assert!(heard(unused), "without the rules it is: the question can be answered otherwise");
            network.ensure_base().await.unwrap();
        }
        let members = || command("nft list set bridge tarn_aaaaaa nodes");
        assert!(members().contains(&own.to_string()));
        network.detach(0, *own).await.unwrap();
        assert!(!members().contains(&own.to_string()), "{}", members());
    });
}
