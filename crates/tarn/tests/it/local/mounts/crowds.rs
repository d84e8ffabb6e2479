//! Processes that come to use a volume faster than they can be ended.

use std::time::Duration;

use tarn_driver::{Driver, InstanceSpec};

use super::{made, place, started, until_it_works};
use crate::local::machine::on_a_machine;

/// As many are named at most.
const MOST: usize = 256;

#[test]
fn whoever_was_killed_is_named_though_others_follow() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[&volume]).await);
        // Eight that are not in the volume themselves, and of which each has one there nearly all the time.
        let again = format!("while :; do (cd {at} && exec sleep 1); done");
        machine.run(&spec.id, &format!("for n in 1 2 3 4 5 6 7 8; do ({again}) >/dev/null 2>&1 & done")).await;
        until_it_works(machine, &spec.id, "pgrep -x sleep").await;
        let killed = machine.driver.end_holders(&volume.id, &spec.id, Duration::ZERO).await.unwrap();
        assert!(!killed.is_empty() && killed.len() <= MOST, "{killed:?}");
        assert!(killed.iter().any(|holder| holder.program == "sleep"), "{killed:?}");
        // The next start is without it, and then nobody can be in it.
        machine.start(&InstanceSpec { boot: 2, volumes: Vec::new(), ..spec.clone() }).await;
        machine.driver.remove_volume(&volume.id).await.unwrap();
    });
}
