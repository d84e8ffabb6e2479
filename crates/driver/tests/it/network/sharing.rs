//! A shared host: with other engines, and with people who use any names and addresses.

use std::collections::BTreeSet;

use tarn_driver::Error;
use tarn_driver::local::network::Network;

use crate::network::host::{Cluster, Namespace, command, interfaces, on_test_host, snapshot};
use crate::network::probes::{connects, is_cut_off_from, listen};

/// Both installations prefer the same prefix: the last characters of their ids agree.
#[test]
fn two_installations_stay_apart() {
    on_test_host(|| async {
        let first = Network::open("aaaaaa", None).await.unwrap();
        let second = Network::open("baaaaa", None).await.unwrap();
        assert_eq!(first.prefix(), second.prefix());
        let ours = Cluster::start(&first, 0, 1).await;
        let late = second.ensure_bridge(0).await;
        assert!(matches!(late, Err(Error::Retry(_))), "{late:?}");
        assert_eq!(second.leftovers().await.unwrap(), [""; 0]);
        assert_eq!(first.settle().await.unwrap(), first.prefix());
        let moved = second.settle().await.unwrap();
        assert_ne!(moved, first.prefix());
        let theirs = Cluster::start(&second, 0, 1).await;
        let (address, node) = &theirs.nodes[0];
        let port = node.run(listen);
        assert!(connects(*address, port));
        assert!(is_cut_off_from(&ours.nodes[0].1, *address, port));
        let remembered = Network::open("baaaaa", Some(moved)).await.unwrap();
        assert_eq!(remembered.prefix(), moved);
        ours.remove(&first).await;
        first.remove_base().await.unwrap();
        assert!(connects(*address, port));
        assert_eq!(second.leftovers().await.unwrap(), ["tbaaaaa-0", "tbaaaaa_0002", "tarn_baaaaa"]);
    });
}

#[test]
fn routed_prefix_is_not_chosen() {
    on_test_host(|| async {
        let favourite = Network::open("aaaaaa", None).await.unwrap().prefix();
        command("ip link add cable type bridge");
        command("ip link set cable up");
        command("ip address add 192.0.2.1/24 dev cable");
        command("ip route add default via 192.0.2.2");
        assert_eq!(Network::open("aaaaaa", None).await.unwrap().prefix(), favourite);
        command(&format!("ip route add {favourite} dev cable"));
        assert_ne!(Network::open("aaaaaa", None).await.unwrap().prefix(), favourite);
        command("ip route add 10.0.0.0/8 dev cable");
        let elsewhere = Network::open("aaaaaa", None).await.unwrap().prefix();
        assert_eq!(elsewhere.start().octets()[0], 172);
        command("ip route add 172.16.0.0/12 dev cable");
        let none = Network::open("aaaaaa", None).await;
        assert!(matches!(none, Err(Error::Permanent(text)) if text.contains("no free network")));
    });
}

/// Names that are taken are an error, and the foreign objects stay as they are.
#[test]
fn foreign_objects_are_not_touched() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        network.ensure_bridge(1).await.unwrap();
        command("ip link add taaaaaa-0 type bridge");
        command("ip link add taaaaaa-2 type veth peer name foreign");
        command("ip link add taaaaaa_0042 type bridge");
        let before = snapshot();
        let address = network.address(1, &BTreeSet::new()).unwrap();
        let instance = Namespace::instance();
        let results = [
            network.ensure_bridge(0).await,
            network.remove_bridge(0).await,
            network.ensure_bridge(2).await,
            network.remove_bridge(2).await,
            network.attach(1, address, instance.pid()).await,
            network.detach(1, address).await,
        ];
        for result in results {
            assert!(matches!(&result, Err(Error::Permanent(text)) if text.contains("did not create")), "{result:?}");
        }
        assert_eq!(snapshot(), before);
        assert!(!instance.run(interfaces).contains(&"eth0".to_owned()));
        assert_eq!(network.leftovers().await.unwrap(), ["taaaaaa-1"]);
    });
}
