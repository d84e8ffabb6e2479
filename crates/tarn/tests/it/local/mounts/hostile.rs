//! An instance whose `root` obstructs the mount point of a volume or tries to reach the volume in other ways.

use tarn_driver::{Driver, Error, InstanceSpec};

use super::{assert_nothing_mounted, create_volume, mount_point, start_with_volumes};
use crate::local::test_host::{TIMEOUT, with_test_host};

/// Prints all mount points.
const PLACES: &str = "cut -d ' ' -f 5 /proc/self/mountinfo";

/// An obstacle, the command that creates it, and the command that removes it.
const OBSTACLES: [(&str, &str, &str); 6] = [
    ("mnt is a link to a directory of the system", "rmdir /mnt && ln -s /etc /mnt", "rm /mnt && mkdir /mnt"),
    ("mnt is a link to somewhere else", "mv /mnt /srv/mnt && ln -s srv/mnt /mnt", "rm /mnt && mv /srv/mnt /mnt"),
    ("mnt is a file", "rmdir /mnt && touch /mnt", "rm /mnt"),
    ("the place is a link", "ln -s /etc $at", "rm $at"),
    ("the place is a file", "touch $at", "rm $at"),
    ("the place is not empty", "mkdir $at && touch $at/file", "rm -r $at"),
];

/// Whatever occupies the mount point is never mounted over.
#[test]
fn obstacles_are_never_mounted_over() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[]).await);
        let as_root = |command: &str| format!("sudo at={at} sh -c '{command}'");
        let mounts = host.run(&spec.id, PLACES).await;
        let mut boot = 1;
        for (what, obstacle, away) in OBSTACLES {
            host.run(&spec.id, &as_root(obstacle)).await;
            let refused = host.driver.ensure_mount(&volume.id, &spec.id).await;
            let Err(Error::Permanent(why)) = refused else { panic!("{what}: {refused:?}") };
            assert!(why.contains("/mnt") && why.contains("move"), "{what}: {why}");
            assert_eq!(host.run(&spec.id, PLACES).await, mounts, "{what}: nothing is mounted");
            boot += 1;
            let with = InstanceSpec { boot, volumes: vec![volume.id.clone()], ..spec.clone() };
            let refused = host.driver.ensure_instance(&with).await;
            assert!(matches!(refused, Err(Error::Permanent(_))), "{what}: nor is it started with it: {refused:?}");
            boot += 1;
            host.start(&InstanceSpec { boot, ..spec.clone() }).await;
            host.run(&spec.id, &as_root(away)).await;
            host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
            host.run(&spec.id, &format!("touch {at}/file && rm {at}/file")).await;
            host.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        }
    });
}

/// Prints what it was able to do although it should not be.
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

/// `root` in an instance can use a volume but not move it.
#[test]
fn root_inside_cannot_move_volume() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[&volume]).await);
        let quoted = ATTEMPTS.replace('\'', r"'\''");
        assert_eq!(host.run(&spec.id, &format!("sudo at={at} sh -c '{quoted}'")).await, "");
        assert_eq!(host.run(&spec.id, &format!("{at}/id -u")).await, "1000\n", "programs gain nothing from it");
        assert_nothing_mounted(host);
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

/// A moved mount is found, and its empty mount point stays closed.
#[test]
fn moved_mount_is_found_and_mount_point_stays_closed() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[]).await);
        // A directory of the image cannot be renamed; one that the instance created can.
        host.run(&spec.id, "sudo rmdir /mnt && sudo mkdir /mnt").await;
        host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        let odd = "/srv/o\\ d\\\\134";
        host.run(&spec.id, &format!("touch {at}/file; sudo mv /mnt {odd} && sudo ln -s /etc /mnt")).await;
        assert_eq!(host.run(&spec.id, &format!("ls {odd}/{}", volume.id)).await, "file\n");
        let seen = host.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id));
        host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        host.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        assert_eq!(host.run(&spec.id, &format!("ls -A {odd}; ls -d /mnt/passwd")).await, "/mnt/passwd\n");
        host.run(&spec.id, &format!("sudo rm /mnt && sudo mv {odd} /mnt")).await;
        // A restart leaves the mount point where it was moved to, because it was never unmounted.
        host.driver.ensure_mount(&volume.id, &spec.id).await.unwrap();
        host.run(&spec.id, "sudo mv /mnt /srv/moved").await;
        host.start(&InstanceSpec { boot: 2, ..spec.clone() }).await;
        let left = format!("/srv/moved/{}", volume.id);
        assert_eq!(host.run(&spec.id, &format!("ls -d {left}; ls -A {left}")).await, format!("{left}\n"));
        assert_eq!(host.run(&spec.id, &format!("sudo at={left} sh -c '{AT_THE_PLACE}'")).await, "");
        assert_nothing_mounted(host);
    });
}

/// A tenant that keeps moving the mount point moves only its own mount.
#[test]
fn racing_moves_affect_only_own_mount() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let spec = start_with_volumes(host, &[]).await;
        host.run(&spec.id, "sudo rmdir /mnt && sudo mkdir /mnt").await;
        let places = host.run(&spec.id, PLACES).await;
        let moving = "while :; do mv -T /mnt /srv/m; mv -T /srv/m /mnt; mkdir /mnt; rmdir /mnt; done";
        host.run(&spec.id, &format!("(sudo sh -c '{moving}') >/dev/null 2>&1 &")).await;
        let mut worked = 0;
        for _ in 0..40 {
            worked += u32::from(host.driver.ensure_mount(&volume.id, &spec.id).await.is_ok());
            let now = host.run(&spec.id, PLACES).await;
            let more: Vec<_> = now.lines().filter(|place| !places.lines().any(|before| before == *place)).collect();
            let own = |place: &&str| ["/mnt/", "/srv/m/"].iter().any(|at| **place == format!("{at}{}", volume.id));
            assert!(more.len() < 2 && more.iter().all(own), "{more:?}");
            let gone = async { while host.driver.remove_mount(&volume.id, &spec.id).await.is_err() {} };
            tokio::time::timeout(TIMEOUT, gone).await.expect("it is unmounted in the end");
        }
        assert!(worked > 0, "it is mounted now and then");
        assert_eq!(host.run(&spec.id, PLACES).await, places);
        let seen = host.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert!(seen.running && seen.volumes.is_empty(), "{seen:?}");
    });
}
