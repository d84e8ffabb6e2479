//! Why an instance does not run any more.

use std::process::Command;

use tarn_driver::{Driver, End};

use crate::local::machine::on_a_machine;

#[test]
fn killed_from_outside_is_lost_and_can_be_started_again() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        machine.start(&spec).await;
        let init = machine.init(&spec.id);
        assert!(Command::new("kill").args(["-9", &init.to_string()]).status().unwrap().success());
        let seen = machine.until(&spec.id, |seen| !seen.running).await;
        assert_eq!(seen.end, Some(End::Lost));
        let again = machine.driver.ensure_instance(&spec).await.unwrap();
        assert!(again.running && again.end.is_none(), "{again:?}");
        assert_eq!(machine.run(&spec.id, "echo again").await, "again\n");
    });
}

#[test]
fn ended_from_inside_is_an_exit() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        machine.start(&spec).await;
        // The session ends with everything else, one way or the other.
        let _ended = machine.outcome(&spec.id, "sudo kill -TERM 1").await;
        let seen = machine.until(&spec.id, |seen| !seen.running).await;
        assert_eq!(seen.end, Some(End::Exit));
    });
}
