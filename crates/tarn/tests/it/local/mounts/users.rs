//! Processes that use a volume which is to be unmounted.

use std::time::Duration;

use tarn_driver::{Driver, Error, VolumeUser};
use tarn_model::ids::{InstanceId, VolumeId};

use super::{assert_nothing_mounted, create_volume, mount_point, start_with_volumes, wait_until_works};
use crate::local::test_host::{TIMEOUT, TestHost, with_test_host};

/// Commands that use a volume, each in another way; the name of the program, and whether it ends when asked to.
const USERS: [(&str, &str, bool); 9] = [
    ("cd $at && exec sleep 1000", "sleep", true),
    ("exec tail -f $at/file", "tail", true),
    ("cp /usr/bin/sleep $at/program && exec $at/program 1000", "program", true),
    ("cp /usr/lib/*/libm.so.6 $at/m.so && LD_PRELOAD=$at/m.so exec tee <> /tmp/pipe", "tee", true),
    ("trap \"\" TERM HUP; exec cat 3< $at/file <> /tmp/pipe", "cat", false),
    ("exec /tmp/bin/listener /tmp/uses.py listen $at", "listener", true),
    ("exec /tmp/bin/worker /tmp/uses.py work $at", "worker", true),
    ("exec /tmp/bin/reader /tmp/uses.py read $at", "reader", true),
    ("exec /tmp/bin/orphan /tmp/uses.py outlive $at", "orphan", true),
];

/// Uses that need a program: a socket with a relative name that is removed, a thread with its own directory or open
/// files, and a thread that outlives the first one.
const USES: &str = r#"
import ctypes, os, platform, socket, sys, threading
use, at = sys.argv[1:]
libc = ctypes.CDLL(None)
done = threading.Event()
def beside(work):
    def run():
        work()
        done.set()
        threading.Event().wait()
    threading.Thread(target=run).start()
    done.wait()
def work():
    assert libc.unshare(0x200) == 0
    os.chdir(at)
def read():
    assert libc.unshare(0x400) == 0
    os.open(at + "/file", os.O_RDONLY)
if use == "listen":
    os.chdir(at)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    os.unlink("socket")
    os.chdir("/")
elif use == "outlive":
    beside(lambda: os.open(at + "/file", os.O_RDONLY))
    libc.syscall(60 if platform.machine() == "x86_64" else 93, 0)
else:
    beside(work if use == "work" else read)
threading.Event().wait()
"#;

/// The commands that can run here.
async fn users(host: &TestHost, id: &InstanceId) -> Vec<(&'static str, &'static str, bool)> {
    let make = "mkdir /tmp/bin && for name in listener worker reader orphan; do \
        ln -s $(command -v python3) /tmp/bin/$name; done && python3 -c 'import ctypes'";
    let mut users = USERS.to_vec();
    match host.attempt(id, make).await {
        (0, _) => drop(host.run(id, &format!("cat > /tmp/uses.py <<'end'{USES}end\n")).await),
        (_, why) => {
            eprintln!("skipped: sockets and threads need python3: {why}");
            users.retain(|user| !user.0.contains("uses.py"));
        }
    }
    users
}

/// Waits until so many processes use a volume.
async fn wait_for_users(host: &TestHost, volume: &VolumeId, id: &InstanceId, count: usize) -> Vec<VolumeUser> {
    let mut volume_users = Vec::new();
    let held = async {
        while volume_users.len() < count {
            volume_users = host.driver.volume_users(volume, id).await.unwrap();
        }
    };
    let waited = tokio::time::timeout(TIMEOUT, held).await;
    assert!(waited.is_ok(), "{count} use it, and only these are seen: {volume_users:?}");
    volume_users
}

/// The processes that use a volume are named, asked to end, and finally killed.
#[test]
fn users_are_named_asked_and_killed() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let (at, spec) = (mount_point(&volume), start_with_volumes(host, &[&volume]).await);
        host.run(&spec.id, "sleep 1001 >/dev/null 2>&1 &").await;
        host.run(&spec.id, &format!("touch {at}/file; mkfifo /tmp/pipe")).await;
        let users = users(host, &spec.id).await;
        for (command, program, _) in &users {
            let command = format!("echo $$ > /tmp/{program}; {command}");
            host.run(&spec.id, &format!("at={at} setsid sh -c '{command}' </dev/null >/dev/null 2>&1 &")).await;
            wait_until_works(host, &spec.id, &format!("pgrep -x {program}")).await;
        }
        let init = host.init(&spec.id);
        let volume_users = wait_for_users(host, &volume.id, &spec.id, users.len()).await;
        let refused = host.driver.remove_mount(&volume.id, &spec.id).await;
        let Err(Error::Permanent(why)) = refused else { panic!("{refused:?}") };
        for (_, program, _) in &users {
            let pid = host.run(&spec.id, &format!("cat /tmp/{program}")).await.trim().parse().unwrap();
            let holder = VolumeUser { pid, program: (*program).into() };
            assert!(
                volume_users.contains(&holder) && why.contains(&holder.to_string()),
                "{holder} in {why} and {volume_users:?}"
            );
        }
        assert_eq!(volume_users.len(), users.len(), "{volume_users:?}");
        let seen = host.driver.observe_instance(&spec.id).await.unwrap().unwrap();
        assert_eq!(seen.volumes, std::slice::from_ref(&volume.id), "what is in use stays");
        host.run(&spec.id, &format!("test -e {at}/file && pgrep -x tail")).await;

        // Long enough for processes that end when asked to, also on a busy host.
        let killed = host.driver.end_volume_users(&volume.id, &spec.id, Duration::from_secs(5)).await.unwrap();
        let stubborn: Vec<_> = users.iter().filter(|user| !user.2).map(|user| user.1).collect();
        assert_eq!(killed.iter().map(|holder| holder.program.as_str()).collect::<Vec<_>>(), stubborn);
        assert_eq!(host.driver.volume_users(&volume.id, &spec.id).await, Ok(Vec::new()));
        host.driver.remove_mount(&volume.id, &spec.id).await.unwrap();
        host.run(&spec.id, "pgrep -f 'sleep 1001'").await;
        assert_eq!(host.init(&spec.id), init, "no other process was touched");
        assert_nothing_mounted(host);
    });
}

/// A volume that no process uses has no users.
#[test]
fn unused_volume_has_no_users() {
    with_test_host(async |host| {
        let volume = create_volume(host).await;
        let [with, without] = [start_with_volumes(host, &[&volume]).await, start_with_volumes(host, &[]).await];
        host.run(&with.id, &format!("touch {}/file", mount_point(&volume))).await;
        for spec in [&with, &without] {
            assert_eq!(host.driver.volume_users(&volume.id, &spec.id).await, Ok(Vec::new()));
            let killed = host.driver.end_volume_users(&volume.id, &spec.id, Duration::ZERO).await;
            assert_eq!(killed, Ok(Vec::new()));
        }
        // A use in another instance does not keep it mounted here.
        let command = format!("cd {} && setsid sleep 1000 >/dev/null 2>&1 &", mount_point(&volume));
        host.driver.ensure_mount(&volume.id, &without.id).await.unwrap();
        host.run(&without.id, &command).await;
        wait_until_works(host, &without.id, "pgrep -x sleep").await;
        assert_eq!(host.driver.volume_users(&volume.id, &with.id).await, Ok(Vec::new()));
        host.driver.remove_mount(&volume.id, &with.id).await.unwrap();
        assert!(matches!(host.driver.remove_mount(&volume.id, &without.id).await, Err(Error::Permanent(_))));
    });
}
