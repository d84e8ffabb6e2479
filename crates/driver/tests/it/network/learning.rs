//! The forwarding table of a bridge is configured, and not learned from nodes.

use tarn_driver::local::network::Network;

use crate::network::frames::{Wire, frame, hardware_address};
use crate::network::host::{Cluster, command, on_test_host};
use crate::network::probes::{arrives, receiver, send};

/// Group addresses that a bridge handles itself, before any rule applies: LLDP and 802.1X.
const HANDLED_BY_THE_BRIDGE: [([u8; 6], u16); 2] =
    [([0x01, 0x80, 0xc2, 0, 0, 0x0e], 0x88cc), ([0x01, 0x80, 0xc2, 0, 0, 0x03], 0x888e)];

/// Returns the learned entries of the bridge.
fn learnt() -> Vec<String> {
    let all = command("bridge fdb show br taaaaaa-0");
    let is_configured = |line: &&str| line.contains(" permanent") || line.contains(" static");
    all.lines().filter(|line| !is_configured(line)).map(str::to_owned).collect()
}

/// Frames that bridges handle themselves do not divert the traffic of another node.
#[test]
fn bridge_learns_no_spoofed_address() {
    on_test_host(|| async {
        let network = Network::open("aaaaaa", None).await.unwrap();
        let cluster = Cluster::start(&network, 0, 3).await;
        let [(_, attacker), (victim, second), (sender, third)] = &cluster.nodes[..] else { panic!() };
        let (socket, port) = second.run(receiver);
        let (victim, sender) = (*victim, *sender);
        let wire = attacker.run(Wire::new);
        third.run(move || send(sender, victim, port));
        assert!(arrives(&socket), "and now the third knows the hardware address of the second");
        for (group, protocol) in HANDLED_BY_THE_BRIDGE {
            wire.send(&frame(group, hardware_address(victim), protocol, &[0; 46]));
            for number in 0..100 {
                wire.send(&frame(group, [0x02, 0, 0, 0, 1, number], protocol, &[0; 46]));
            }
            wire.seen();
            third.run(move || send(sender, victim, port));
            assert!(arrives(&socket), "{protocol:x}");
            let theirs = |frame: &Vec<u8>| frame[..6] == hardware_address(victim);
            assert!(!wire.seen().iter().any(theirs), "{protocol:x}");
            assert_eq!(learnt(), [""; 0], "{protocol:x}");
        }
    });
}
