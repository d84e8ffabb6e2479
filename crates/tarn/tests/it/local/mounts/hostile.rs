//! An instance whose `root` does not want a volume to be where it belongs, or wants to get at it in other ways.

use tarn_driver::{Driver, Error, InstanceSpec};

use super::{made, nothing_is_mounted, place, started};
use crate::local::machine::{PATIENCE, on_a_machine};

/// Says where something is mounted.
const PLACES: &str = "cut -d ' ' -f 5 /proc/self/mountinfo";

/// What is in the way, and how it is put away again.
const OBSTACLES: [(&str, &str, &str); 6] = [
    ("mnt is a link to a directory of the system", "rmdir /mnt && ln -s /etc /mnt", "rm /mnt && mkdir /mnt"),
    ("mnt is a link to somewhere else", "mv /mnt /srv/mnt && ln -s srv/mnt /mnt", "rm /mnt && mv /srv/mnt /mnt"),
    ("mnt is a file", "rmdir /mnt && touch /mnt", "rm /mnt"),
    ("the place is a link", "ln -s /etc $at", "rm $at"),
    ("the place is a file", "touch $at", "rm $at"),
    ("the place is not empty", "mkdir $at && touch $at/file", "rm -r $at"),
];

#[test]
fn what_is_in_the_way_is_never_mounted_over() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[]).await);
        let as_root = |command: &str| format!("sudo at={at} sh -c '{command}'");
        let mounts = machine.run(&spec.id, PLACES).await;
        let mut boot = 1;
        for (what, obstacle, away) in OBSTACLES {
            machine.run(&spec.id, &as_root(obstacle)).await;
            let refused = machine.driver.ensure_mount(&volume.id, &spec.id).await;
            let Err(Error::Permanent(why)) = refused else { panic!("{what}: {refused:?}") };
            assert!(why.contains("/mnt") && why.contains("move"), "{what}: {why}");
            assert_eq!(machine.run(&spec.id, PLACES).await, mounts, "{what}: nothing is mounted");
            boot += 1;
            let with = InstanceSpec { boot, volumes: vec![volume.id.clone()], ..spec.clone() };
            let refused = machine.driver.ensure_instance(&with).await;
            assert!(matches!(refused, Err(Error::Permanent(_))), "{what}: nor is it started with it: {refused:?}");
            boot += 1;
            machine.start(&InstanceSpec { boot, ..spec.clone() }).await;
            machine.run(&spec.id, &as_root(away)).await;
            machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
            machine.run(&spec.id, &format!("touch {at}/file && rm {at}/file")).await;
            machine.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        }
    });
}

/// Prints what it was able to do that it should not.
const ATTEMPTS: &str = r#"
refused() { "$@" >/dev/null 2>&1 && echo "able to: $*"; }
refused umount $at
refused umount -l $at
refused mount -o remount,suid,dev $at
refused mount --bind $at /srv
refused mv $at /srv/elsewhere
refused rmdir $at
refused mknod $at/disk b 7 0
for disk in /dev/loop*; do refused test -e $disk; done
cp /usr/bin/id $at/id && chmod 4755 $at/id
true
"#;

#[test]
fn root_inside_can_use_a_volume_but_not_move_it() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[&volume]).await);
        let quoted = ATTEMPTS.replace('\'', r"'\''");
        assert_eq!(machine.run(&spec.id, &format!("sudo at={at} sh -c '{quoted}'")).await, "");
        assert_eq!(machine.run(&spec.id, &format!("{at}/id -u")).await, "1000\n", "programs gain nothing from it");
        nothing_is_mounted(machine);
    });
}

/// Prints what it was able to do to an empty mount point.
const AT_THE_PLACE: &str = r#"
refused() { "$@" >/dev/null 2>&1 && echo "able to: $*"; }
refused touch $at/file
refused mkdir $at/directory
refused chmod 777 $at
refused chown ubuntu $at
refused chattr -i $at
refused rmdir $at
refused mv $at /srv/elsewhere
true
"#;

#[test]
fn a_mount_that_was_moved_is_found_and_its_empty_place_stays_closed() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let (at, spec) = (place(&volume), started(machine, &[]).await);
        // A directory of the image cannot be renamed, one of the instance's own can.
        machine.run(&spec.id, "sudo rmdir /mnt && sudo mkdir /mnt").await;
        machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        let odd = "/srv/o\\ d\\\\134";
        machine.run(&spec.id, &format!("touch {at}/file; sudo mv /mnt {odd} && sudo ln -s /etc /mnt")).await;
        assert_eq!(machine.run(&spec.id, &format!("ls {odd}/{}", volume.id)).await, "file\n");
        let seen = machine.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id));
        machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        machine.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        assert_eq!(machine.run(&spec.id, &format!("ls -A {odd}; ls -d /mnt/passwd")).await, "/mnt/passwd\n");
        machine.run(&spec.id, &format!("sudo rm /mnt && sudo mv {odd} /mnt")).await;
        // A restart leaves the mount point where it was moved to: nobody has unmounted it.
        machine.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        machine.run(&spec.id, "sudo mv /mnt /srv/moved").await;
        machine.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        let left = format!("/srv/moved/{}", volume.id);
        assert_eq!(machine.run(&spec.id, &format!("ls -d {left}; ls -A {left}")).await, format!("{left}\n"));
        assert_eq!(machine.run(&spec.id, &format!("sudo at={left} sh -c '{AT_THE_PLACE}'")).await, "");
        nothing_is_mounted(machine);
    });
}

#[test]
fn whoever_moves_the_place_all_the_time_moves_only_his_own_mount() {
    on_a_machine(async |machine| {
        let volume = made(machine).await;
        let spec = started(machine, &[]).await;
        machine.run(&spec.id, "sudo rmdir /mnt && sudo mkdir /mnt").await;
        let places = machine.run(&spec.id, PLACES).await;
        let moving = "while :; do mv -T /mnt /srv/m; mv -T /srv/m /mnt; mkdir /mnt; rmdir /mnt; done";
        machine.run(&spec.id, &format!("(sudo sh -c '{moving}') >/dev/null 2>&1 &")).await;
        let mut worked = 0;
        for _ in 0..40 {
            worked += u32::from(machine.driver.ensure_mount(&volume.id, &spec.id).await.is_ok());
            let now = machine.run(&spec.id, PLACES).await;
            let more: Vec<_> = now.lines().filter(|place| !places.lines().any(|before| before == *place)).collect();
            let own = |place: &&str| ["/mnt/", "/srv/m/"].iter().any(|at| **place == format!("{at}{}", volume.id));
            assert!(more.len() < 2 && more.iter().all(own), "{more:?}");
            let gone = async { while machine.driver.remove_mount(&volume.id, &spec.id).await.is_err() {} };
            tokio::time::timeout(PATIENCE, gone).await.expect("it is unmounted in the end");
        }
        assert!(worked > 0, "it is mounted now and then");
        assert_eq!(machine.run(&spec.id, PLACES).await, places);
        let seen = machine.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert!(seen.running && seen.volumes.is_empty(), "{seen:?}");
    });
}
