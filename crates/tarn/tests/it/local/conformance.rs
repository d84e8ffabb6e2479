//! The suite of every driver, and many at once.

use tarn_driver::{Driver, conformance};

use crate::local::machine::{mounts, on_a_machine};

#[test]
fn the_local_driver_conforms() {
    on_a_machine(async |machine| conformance::check(&machine.driver, &machine.ids).await);
}

#[test]
fn many_start_and_end_at_once() {
    on_a_machine(async |machine| {
        let specs: Vec<_> = (0..20).map(|_| machine.spec()).collect();
        let started = futures::future::join_all(specs.iter().map(|spec| machine.start(spec))).await;
        let mut addresses: Vec<_> = started.into_iter().map(|started| started.private_ip).collect();
        addresses.sort();
        addresses.dedup();
        assert_eq!(addresses.len(), specs.len(), "each has an address of its own");
        assert_eq!(mounts(machine.driver.installation()), Vec::<String>::new(), "nothing is mounted on the machine");
        let answers = futures::future::join_all(specs.iter().map(|spec| machine.run(&spec.id, "hostname"))).await;
        assert!(answers.iter().all(|answer| answer == "node-0\n"), "{answers:?}");
        let removed =
            futures::future::join_all(specs.iter().map(|spec| machine.driver.remove_instance(&spec.id))).await;
        assert!(removed.iter().all(Result::is_ok), "{removed:?}");
    });
}
