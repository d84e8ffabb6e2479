//! Processes that start to use a volume faster than they can be ended.

use std::time::Duration;

use tarn_driver::{Driver, InstanceSpec};

use super::{create_volume, mount_point, start_with_volumes, wait_until_works};
use crate::local::test_host::with_test_host;

/// How many killed processes are named at most.
const MAX_REPORTED: usize = 256;

/// The killed processes are named even if new ones appear.
#[test]
fn killed_users_are_named_despite_new_ones() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[&volume]).await);
        // Eight shells that do not use the volume themselves, but nearly always have a child that does.
        let again = format!("while :; do (cd {at} && exec sleep 1); done");
        host.run(&spec.id, &format!("for n in 1 2 3 4 5 6 7 8; do ({again}) >/dev/null 2>&1 & done")).await;
        wait_until_works(host, &spec.id, "pgrep -x sleep").await;
        let killed = host.driver.end_volume_users(&volume.id, &spec.id, Duration::ZERO).await.unwrap();
        assert!(!killed.is_empty() && killed.len() <= MAX_REPORTED, "{killed:?}");
        assert!(killed.iter().any(|holder| holder.program == "sleep"), "{killed:?}");
        // The next start is without the volume, so no process can use it.
        host.start(&InstanceSpec { boot: 2, volumes: Vec::new(), ..spec.clone() }).await;
        host.driver.remove_volume(&volume.id).await.unwrap();
    });
}
