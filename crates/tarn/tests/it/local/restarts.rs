//! What survives a restart of an instance, and a restart of the engine.

use std::fs;

use tarn_driver::{Driver, Error, InstanceSpec};

use crate::local::test_host::{open, traces, with_test_host};

/// A restart keeps the disk and ends the processes.
#[test]
fn restart_keeps_disk_and_ends_processes() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        host.run(&spec.id, "echo kept > ~/file && sudo touch /etc/made-by-root /usr/local/bin/tool").await;
        host.run(&spec.id, "sleep 1000 >/dev/null 2>&1 & echo kept-not > /run/user-file 2>/dev/null; true").await;
        let before = host.init(&spec.id);
        let next = InstanceSpec { boot: 2, ..spec.clone() };
        assert_eq!(host.start(&next).await.boot, 2);
        assert_ne!(host.init(&spec.id), before);
        assert_eq!(host.run(&spec.id, "cat ~/file; ls /etc/made-by-root /usr/local/bin/tool").await.lines().count(), 3);
        let (code, _) = host.attempt(&spec.id, "pgrep sleep").await;
        assert_eq!(code, 1, "the processes of the start before are gone");
    });
}

/// The host image is a cache: an instance whose image was lost, as after a move to another host, gets the present one.
#[test]
fn restart_replaces_lost_host_image() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        host.run(&spec.id, "echo kept > ~/file").await;
        fs::rename(host.data.path().join("images/host"), host.data.path().join("images/lost")).unwrap();
        for boot in [2, 3] {
            host.start(&InstanceSpec { boot, ..spec.clone() }).await;
            assert_eq!(host.run(&spec.id, "cat ~/file").await, "kept\n");
        }
    });
}

/// A restarted engine finds its instances untouched.
#[test]
fn restarted_engine_finds_instances_untouched() {
    with_test_host(async |host| {
        let spec = host.spec();
        let made = host.start(&spec).await;
        let init = host.init(&spec.id);
        let second = open(host.data.path()).await.err();
        let refused = matches!(&second, Some(Error::Retry(why)) if why.contains("another engine"));
        assert!(refused, "two engines do not share a data directory: {second:?}");
        let installation = host.driver.installation().to_owned();
        // Another driver takes its place for a moment, so that the first one can close.
        let elsewhere = tempfile::tempdir().unwrap();
        host.driver = open(elsewhere.path()).await.unwrap();
        assert_ne!(host.driver.installation(), installation);
        assert!(host.driver.observe().await.unwrap().instances.is_empty(), "engines do not see each other's");
        assert!(!traces(&installation).is_empty(), "nor does one remove the other's");
        host.driver = open(host.data.path()).await.unwrap();
        assert_eq!(host.driver.installation(), installation);
        assert_eq!(host.driver.observe_instance(&spec.id).await.unwrap(), Some(made.clone()));
        assert_eq!(host.driver.ensure_instance(&spec).await.unwrap(), made);
        assert_eq!(host.init(&spec.id), init);
        assert_eq!(host.run(&spec.id, "echo here").await, "here\n");
    });
}

/// What an engine that died left half removed is swept.
#[test]
fn leftovers_of_dead_engine_are_swept() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        // The record is gone: as if the engine had died between the last steps of a removal.
        let directory = host.data.path().join("instances").join(spec.id.as_str());
        fs::remove_file(directory.join("instance.json")).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        host.driver = open(elsewhere.path()).await.unwrap();
        host.driver = open(host.data.path()).await.unwrap();
        assert!(host.driver.observe().await.unwrap().instances.is_empty());
        assert!(!directory.exists());
        assert_eq!(traces(host.driver.installation()), Vec::<String>::new());
    });
}

/// Impossible specifications are refused and leave nothing behind.
#[test]
fn impossible_specs_are_refused_and_leave_nothing() {
    with_test_host(async |host| {
        let container = InstanceSpec { container: Some("debian".into()), ..host.spec() };
        assert!(matches!(host.driver.ensure_instance(&container).await, Err(Error::Permanent(_))), "not exact");
        let gpu = InstanceSpec { gpus: vec!["no-such".into()], ..host.spec() };
        assert!(matches!(host.driver.ensure_instance(&gpu).await, Err(Error::Retry(_))), "it may come later");
        let name = InstanceSpec { name: "../../etc".into(), ..host.spec() };
        assert!(matches!(host.driver.ensure_instance(&name).await, Err(Error::Permanent(_))));
        assert!(host.driver.observe().await.unwrap().instances.is_empty());
        assert_eq!(traces(host.driver.installation()), Vec::<String>::new());
    });
}
