//! The program as the first process of a process namespace.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tarn_link::opening::open;
use tarn_link::{FromGuest, Purpose, Reply};
use tokio::net::UnixStream;

use crate::fixture::{DEADLINE, GUEST, Root, eventually, exec, is_root};

/// A namespace whose first process is a guest; it ends with the test.
pub(crate) struct Instance {
    unshare: Child,
    pub(crate) root: Arc<Root>,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The child of `unshare` dies with it, and with that child the whole namespace.
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

impl Instance {
    async fn start() -> Option<Instance> {
        if !is_root() {
            return None;
        }
        let root = Root::new(0, 0);
        std::fs::create_dir_all(root.path().join("etc/skel/below")).unwrap();
        root.write("etc/skel/.profile", "export FROM_SKEL=yes\n");
        Some(Instance::of(Arc::new(root)).await)
    }

    /// Starts an instance on an existing root.
    pub(crate) async fn of(root: Arc<Root>) -> Instance {
        let control = root.path().join("control");
        let _ = std::fs::remove_file(&control);
        let unshare = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", GUEST, "--control"])
            .arg(&control)
            .args(["--ssh-port", "0", "--user", "tester", "--root"])
            .arg(root.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let instance = Instance { unshare, root };
        eventually("the guest listens", || std::os::unix::net::UnixStream::connect(&control).is_ok()).await;
        // The kernel accepts connections before the guest serves them, so wait for a reply.
        instance.ask(Purpose::Health).await;
        instance
    }

    pub(crate) async fn ask(&self, purpose: Purpose) -> (Reply, tarn_link::opening::Opened<UnixStream>) {
        let stream = UnixStream::connect(self.root.path().join("control")).await.unwrap();
        tokio::time::timeout(DEADLINE, open(stream, purpose)).await.unwrap().unwrap()
    }

    async fn run(&self, command: &str) -> (String, FromGuest) {
        let (_, (mut reader, _writer)) = self.ask(Purpose::Session(Box::new(exec(command)))).await;
        let mut output = String::new();
        loop {
            match tokio::time::timeout(DEADLINE, reader.read()).await.unwrap().unwrap().unwrap() {
                tarn_link::Frame::Data(data) => output.push_str(&String::from_utf8_lossy(&data)),
                tarn_link::Frame::Message(message) => return (output, tarn_link::Frame::parse(&message).unwrap()),
                _ => {}
            }
        }
    }

    pub(crate) async fn ends_in_order(&mut self) {
        let mut status = None;
        eventually("the guest ends", || {
            status = self.unshare.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert!(status.unwrap().success(), "{status:?}");
    }
}

/// Orphans are reaped, and no exit code is lost.
#[tokio::test]
async fn orphans_are_reaped_and_codes_kept() {
    let Some(instance) = Instance::start().await else { return };
    // Many orphans end while many sessions do: each session still gets its own code.
    for code in 0..20 {
        let (_, end) = instance.run(&format!("for i in $(seq 20); do (sleep 0.0$i & ) ; done; exit {code}")).await;
        assert_eq!(end, FromGuest::Exited { code });
    }
    let mut zombies = String::new();
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        assert!(tokio::time::Instant::now() < deadline, "left over: {zombies}");
        let (output, _) = instance.run("cat /proc/[0-9]*/stat | grep -E '\\) Z|\\(sleep\\)'").await;
        if output.is_empty() {
            break;
        }
        zombies = output;
    }
    let (output, _) = instance.run("cat /proc/1/comm").await;
    assert_eq!(output, "tarn-guest\n");
}

/// An instance is prepared before the first login.
#[tokio::test]
async fn instance_is_prepared_before_login() {
    let Some(instance) = Instance::start().await else { return };
    let root = instance.root.path();
    assert_eq!(root.join("run/lock").metadata().unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(instance.root.read("home/tester/.profile"), "export FROM_SKEL=yes\n");
    assert!(root.join("home/tester/below").is_dir());
    let sudo = root.join("usr/local/bin/sudo").metadata().unwrap();
    assert_eq!((sudo.mode() & 0o7777, sudo.uid()), (0o4755, 0));
    assert_eq!(sudo.len(), Path::new(GUEST).metadata().unwrap().len());
}

/// A stop lets programs clean up.
#[tokio::test]
async fn stop_lets_programs_clean_up() {
    let Some(mut instance) = Instance::start().await else { return };
    let (mark, ready) = (instance.root.home().join("ended-in-order"), instance.root.home().join("ready"));
    let (mark_path, ready_path) = (mark.display(), ready.display());
    let script = format!(
        "setsid bash -c 'trap \"sleep 0.2; echo > {mark_path}; exit\" TERM; echo > {ready_path}; while :; do sleep 0.05; done' \
        </dev/null >/dev/null 2>&1 & setsid bash -c 'trap \"\" TERM; sleep 1000' </dev/null >/dev/null 2>&1 & \
        until [ -e {ready_path} ]; do sleep 0.01; done"
    );
    instance.run(&script).await;
    let (answer, _) = instance.ask(Purpose::Stop).await;
    assert_eq!(answer, Reply::Ready);
    instance.ends_in_order().await;
    assert!(mark.exists(), "the program was not asked");
}

/// A program that ignores TERM is killed.
#[tokio::test]
async fn stubborn_program_is_killed() {
    let Some(mut instance) = Instance::start().await else { return };
    instance
        .run("setsid bash -c 'trap \"\" TERM HUP; while :; do sleep 0.05; done' </dev/null >/dev/null 2>&1 & true")
        .await;
    let pid = namespace_init(&instance.unshare);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    instance.ends_in_order().await;
}

/// Returns the only child of `unshare`.
fn namespace_init(unshare: &Child) -> rustix::process::Pid {
    let id = unshare.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    rustix::process::Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

/// The guest inherits the control socket, and its programs do not.
#[tokio::test]
async fn control_socket_is_not_inherited_by_programs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("control");
    let root = Root::new(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // The shell passes the listening socket as descriptor 3, as the driver does.
    let script = "import os,socket,sys\n\
        s=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(8); os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n\
        os.execv(sys.argv[2], sys.argv[2:])";
    let child = Command::new("python3")
        .args(["-c", script, path.to_str().unwrap(), GUEST, "--user", "tester", "--root"])
        .arg(root.path())
        .spawn()
        .unwrap();
    let guest = Ended(child);
    eventually("the guest listens", || std::os::unix::net::UnixStream::connect(&path).is_ok()).await;
    let session = Purpose::Session(Box::new(exec("ls -l /proc/self/fd | grep -c socket; true")));
    let stream = UnixStream::connect(&path).await.unwrap();
    let (_, (mut reader, _writer)) = tokio::time::timeout(DEADLINE, open(stream, session)).await.unwrap().unwrap();
    assert_eq!(reader.read().await.unwrap(), Some(tarn_link::Frame::Data("0\n".into())));
    drop(guest);
    let without = Command::new(GUEST).stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    assert!(!without.success(), "a guest without a control socket fails");
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An idle stream does not delay a stop.
#[tokio::test]
async fn idle_stream_does_not_delay_a_stop() {
    let Some(mut instance) = Instance::start().await else { return };
    let (_, link) = instance.ask(Purpose::Session(Box::new(exec("sleep 1000")))).await;
    instance.ask(Purpose::Stop).await;
    let stopped = tokio::time::timeout(Duration::from_secs(60), instance.ends_in_order()).await;
    assert!(stopped.is_ok());
    drop(link);
}
