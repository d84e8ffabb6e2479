//! What stays over a restart of an instance, and over one of the engine.

use std::fs;

use tarn_driver::{Driver, Error, InstanceSpec};

use crate::local::machine::{on_a_machine, open, traces};

#[test]
fn a_restart_keeps_the_disk_and_ends_the_processes() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        machine.start(&spec).await;
        machine.run(&spec.id, "echo kept > ~/file && sudo touch /etc/made-by-root /usr/local/bin/tool").await;
        machine.run(&spec.id, "sleep 1000 >/dev/null 2>&1 & echo kept-not > /run/user-file 2>/dev/null; true").await;
        let before = machine.init(&spec.id);
        let next = InstanceSpec { boot: 2, ..spec.clone() };
        assert_eq!(machine.start(&next).await.boot, 2);
        assert_ne!(machine.init(&spec.id), before);
        assert_eq!(
            machine.run(&spec.id, "cat ~/file; ls /etc/made-by-root /usr/local/bin/tool").await.lines().count(),
            3
        );
        let (code, _) = machine.attempt(&spec.id, "pgrep sleep").await;
        assert_eq!(code, 1, "the processes of the start before are gone");
    });
}

#[test]
fn a_restarted_engine_finds_its_instances_untouched() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        let made = machine.start(&spec).await;
        let init = machine.init(&spec.id);
        let second = open(machine.data.path()).await.err();
        let refused = matches!(&second, Some(Error::Retry(why)) if why.contains("another engine"));
        assert!(refused, "two engines do not share a data directory: {second:?}");
        let installation = machine.driver.installation().to_owned();
        // Another driver takes its place for a moment, so that the first one can end.
        let elsewhere = tempfile::tempdir().unwrap();
        machine.driver = open(elsewhere.path()).await.unwrap();
        assert_ne!(machine.driver.installation(), installation);
        assert!(machine.driver.observe().await.unwrap().instances.is_empty(), "engines do not see each other's");
        assert!(!traces(&installation).is_empty(), "nor does one remove the other's");
        machine.driver = open(machine.data.path()).await.unwrap();
        assert_eq!(machine.driver.installation(), installation);
        assert_eq!(machine.driver.observe_instance(&spec.id).await.unwrap(), Some(made.clone()));
        assert_eq!(machine.driver.ensure_instance(&spec).await.unwrap(), made);
        assert_eq!(machine.init(&spec.id), init);
        assert_eq!(machine.run(&spec.id, "echo here").await, "here\n");
    });
}

#[test]
fn what_a_dead_engine_left_half_made_is_swept_away() {
    on_a_machine(async |machine| {
        let spec = machine.spec();
        machine.start(&spec).await;
        // The record is gone: as if the engine had died between the last steps of a removal.
        let directory = machine.data.path().join("instances").join(spec.id.as_str());
        fs::remove_file(directory.join("instance.json")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        machine.driver = open(elsewhere.path()).await.unwrap();
        machine.driver = open(machine.data.path()).await.unwrap();
        assert!(machine.driver.observe().await.unwrap().instances.is_empty());
        assert!(!directory.exists());
        assert_eq!(traces(machine.driver.installation()), Vec::<String>::new());
    });
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    on_a_machine(async |machine| {
        let container = InstanceSpec { container: Some("debian".into()), ..machine.spec() };
        assert!(matches!(machine.driver.ensure_instance(&container).await, Err(Error::Permanent(_))), "not exact");
        let gpu = InstanceSpec { gpus: vec!["no-such".into()], ..machine.spec() };
        assert!(matches!(machine.driver.ensure_instance(&gpu).await, Err(Error::Retry(_))), "it may come later");
        let name = InstanceSpec { name: "../../etc".into(), ..machine.spec() };
        assert!(matches!(machine.driver.ensure_instance(&name).await, Err(Error::Permanent(_))));
        assert!(machine.driver.observe().await.unwrap().instances.is_empty());
        assert_eq!(traces(machine.driver.installation()), Vec::<String>::new());
    });
}
