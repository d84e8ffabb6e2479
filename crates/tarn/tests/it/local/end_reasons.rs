//! Why an instance no longer runs.

use std::process::Command;

use tarn_driver::{Driver, End};

use crate::local::test_host::with_test_host;

/// An instance that is killed from outside is lost, and can be started again.
#[test]
fn killed_instance_is_lost_and_startable() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        let init = host.init(&spec.id);
        assert!(Command::new("kill").args(["-9", &init.to_string()]).status().unwrap().success());
        let seen = host.wait_until(&spec.id, |seen| !seen.running).await;
        assert_eq!(seen.end, Some(End::Lost));
        let again = host.driver.ensure_instance(&spec).await.unwrap();
        assert!(again.running && again.end.is_none(), "{again:?}");
        assert_eq!(host.run(&spec.id, "echo again").await, "again\n");
    });
}

/// An instance that ends from inside has exited.
#[test]
fn shutdown_from_inside_is_exit() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        // The session ends with everything else, with or without an outcome.
        let _ended = host.outcome(&spec.id, "sudo kill -TERM 1").await;
        let seen = host.wait_until(&spec.id, |seen| !seen.running).await;
        assert_eq!(seen.end, Some(End::Exit));
    });
}
