//! The conformance suite of all drivers, and many instances at once.

use tarn_driver::{Driver, conformance};

use crate::local::test_host::{mounts, with_test_host};

/// The local driver passes the conformance suite.
#[test]
fn local_driver_conforms() {
    with_test_host(async |host| conformance::check(&host.driver, &host.ids).await);
}

/// Twenty instances start, run and end at once.
#[test]
fn many_instances_start_and_end_at_once() {
    with_test_host(async |host| {
        let specs: Vec<_> = (0..20).map(|_| host.spec()).collect();
        let started = futures::future::join_all(specs.iter().map(|spec| host.start(spec))).await;
        let mut addresses: Vec<_> = started.into_iter().map(|started| started.private_ip).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), specs.len(), "each has an address of its own");
        assert_eq!(mounts(host.driver.installation()), Vec::<String>::new(), "nothing is mounted on the host");
        let answers = futures::future::join_all(specs.iter().map(|spec| host.run(&spec.id, "hostname"))).await;
        assert!(answers.iter().all(|answer| answer == "node-0\n"), "{answers:?}");
        let removed = futures::future::join_all(specs.iter().map(|spec| host.driver.remove_instance(&spec.id))).await;
        assert!(removed.iter().all(Result::is_ok), "{removed:?}");
    });
}
