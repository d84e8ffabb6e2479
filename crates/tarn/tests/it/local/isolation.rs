//! What an instance can see and do, tried from inside as `root`.

use std::process::{Child, Command, Stdio};

use crate::local::test_host::with_test_host;

/// A process of the host, which ends with the test.
struct Bystander(Child);

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _collected = self.0.wait();
    }
}

/// Prints what it was able to do although it should not be, and nothing else.
const ATTEMPTS: &str = r#"
refused() { "$@" >/dev/null 2>&1 && echo "able to: $*"; }
refused mknod /tmp/disk b 8 0
refused mknod /tmp/memory c 1 1
refused mount -t tmpfs none /mnt
refused mount -t proc proc /mnt
refused mount --bind / /mnt
refused unshare --user true
refused unshare --mount true
refused nsenter --target 1 --net true
refused sh -c 'echo 1 > /proc/sys/kernel/panic'
refused sh -c 'echo x > /proc/sys/kernel/core_pattern'
refused sh -c 'echo 0 > /proc/sys/vm/overcommit_memory'
refused sh -c 'echo b > /proc/sysrq-trigger'
refused sh -c 'echo 1 > /sys/kernel/mm/ksm/run'
refused sh -c 'cat /proc/kcore | head -c 1 | grep -q .'
refused sh -c 'dmesg | grep -q .'
refused hostname other
refused date --set 2001-01-01
refused sh -c 'ls /sys/fs/cgroup | grep -q .'
refused swapon /etc/passwd
refused sh -c 'ulimit -Hn 2000000'
true
"#;

/// `root` in an instance is not root of the host.
#[test]
fn root_inside_is_not_root_of_host() {
    with_test_host(async |host| {
        let spec = host.spec();
        host.start(&spec).await;
        assert_eq!(host.run(&spec.id, "id -un").await, "ubuntu\n");
        assert_eq!(host.run(&spec.id, "sudo id -u").await, "0\n", "sudo works without a password");
        let quoted = ATTEMPTS.replace('\'', r"'\''");
        assert_eq!(host.run(&spec.id, &format!("sudo sh -c '{quoted}'")).await, "", "nothing of this is possible");
        let init = std::fs::read_to_string(format!("/proc/{}/status", host.init(&spec.id))).unwrap();
        let user = init.lines().find_map(|line| line.strip_prefix("Uid:\t")).unwrap();
        assert!(
            user.split('\t').all(|id| id.parse::<u32>().unwrap() > 1 << 30),
            "its root is no user of the host: {user}"
        );
    });
}

/// Nothing of the host is visible in an instance.
#[test]
fn nothing_of_host_is_visible() {
    with_test_host(async |host| {
        let secret = tempfile::tempdir().unwrap();
        std::fs::write(secret.path().join("key"), "secret of the host").unwrap();
        let mut own =
            Bystander(Command::new("sleep").arg("1000").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let spec = host.spec();
        host.start(&spec).await;
        let hidden = [secret.path(), host.data.path(), std::path::Path::new("/run/tarn")];
        for path in hidden {
            let (code, output) = host.attempt(&spec.id, &format!("sudo ls -d {}", path.display())).await;
            assert_ne!(code, 0, "{output}");
        }
        let checks = [
            ("sudo ls -A /root /home /mnt /media /srv | grep -v -e : -e ubuntu -e '^$' -e '^\\.'; true", ""),
            ("sudo find / -xdev -name '*.sock' 2>/dev/null", ""),
            ("sudo sh -c 'cut -d: -f2 /etc/shadow' | sort -u", "*\n"),
            ("sudo find /etc/ssl/private /etc/ssh -name '*key*' 2>/dev/null", ""),
            ("ls /usr/etc /usr/local/etc 2>/dev/null; true", ""),
            ("cat /etc/machine-id", ""),
            ("cat /etc/hostname; hostname", "node-0\nnode-0\n"),
            ("sudo kill -0 -- -1; ps -e -o comm= | grep -c -v -e guest -e ps -e sh -e grep -e sudo; true", "0\n"),
        ];
        for (command, answer) in checks {
            assert_eq!(host.attempt(&spec.id, command).await.1, answer, "{command}");
        }
        let mounts = host.run(&spec.id, "cat /proc/self/mountinfo").await;
        assert!(!mounts.contains("/instances") && !mounts.contains(host.driver.installation()), "{mounts}");
        assert!(own.0.try_wait().unwrap().is_none(), "a process of the host was signalled");
    });
}

/// An instance has the CPUs and the memory of its shape.
#[test]
fn limits_match_shape() {
    with_test_host(async |host| {
        let mut spec = host.spec();
        spec.shape.cpu_milli = 1_000;
        host.start(&spec).await;
        assert_eq!(host.run(&spec.id, "nproc").await, "1\n");
        assert_eq!(host.run(&spec.id, "sudo nproc").await, "1\n");
        let (code, output) = host.attempt(&spec.id, "head -c 400M /dev/zero | tail -c 390M | wc -c").await;
        assert!(code != 0 || !output.starts_with("408944640"), "more memory than it has: {output}");
        assert_eq!(host.run(&spec.id, "echo still here").await, "still here\n");
    });
}
