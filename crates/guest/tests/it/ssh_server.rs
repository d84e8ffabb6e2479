//! The SSH server of an instance, tested with OpenSSH's clients.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tarn_guest::ssh_server;
use tarn_link::{Configuration, Purpose};
use tokio::net::TcpListener;

use crate::configuration::key_pair;
use crate::fixture::Fixture;

struct Server {
    fixture: Fixture,
    port: u16,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts a guest that serves SSH and authorizes one key, in the file `key`.
    async fn start() -> Server {
        let fixture = Fixture::as_other_user().unwrap_or_else(Fixture::new);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(ssh_server::serve_ssh(fixture.guest.clone(), listener, std::future::pending()));
        let server = Server { fixture, port, directory: tempfile::tempdir().unwrap() };
        let (key, public_key) = key_pair();
        server.write("key", &key);
        server.configure(vec![public_key]).await;
        server
    }

    /// Configures keys and a new host key that the clients know.
    async fn configure(&self, public_keys: Vec<String>) {
        let (host_key, public_host_key) = key_pair();
        self.write("known_hosts", &format!("[127.0.0.1]:{} {public_host_key}\n", self.port));
        let configuration = Configuration { public_keys, host_key, ..Configuration::default() };
        self.fixture.ask(Purpose::Configure(Box::new(configuration))).await.unwrap();
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn options(&self) -> Vec<String> {
        let known_hosts = format!("UserKnownHostsFile={}", self.path("known_hosts").display());
        let key = self.path("key").display().to_string();
        let fixed =
            ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "IdentitiesOnly=yes", "-F", "none"];
        let mut options: Vec<String> = fixed.iter().map(|option| (*option).into()).collect();
        options.extend(["-o".into(), known_hosts, "-i".into(), key]);
        options
    }

    /// Runs `ssh` on the host.
    async fn ssh(&self, user: &str, arguments: &[&str]) -> Output {
        let port = self.port.to_string();
        let mut all = self.options();
        all.extend(["-p".into(), port, format!("{user}@127.0.0.1")]);
        all.extend(arguments.iter().map(|argument| (*argument).into()));
        self.run("ssh", all).await
    }

    async fn run(&self, program: &str, arguments: Vec<String>) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env_remove("SSH_AUTH_SOCK").stdin(std::process::Stdio::null());
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A known key logs in, and exit codes come back.
#[tokio::test]
async fn known_key_logs_in() {
    let server = Server::start().await;
    let output = server.ssh("tester", &["echo hello; echo problem >&2; exit 9"]).await;
    assert_eq!((text(&output.stdout), output.status.code()), ("hello\n".into(), Some(9)), "{output:?}");
    assert!(text(&output.stderr).ends_with("problem\n"));
}

/// Other keys and users are refused.
#[tokio::test]
async fn unknown_key_and_user_are_refused() {
    let server = Server::start().await;
    assert!(text(&server.ssh("root", &["true"]).await.stderr).contains("Permission denied"));
    server.write("key", &key_pair().0);
    assert!(text(&server.ssh("tester", &["true"]).await.stderr).contains("Permission denied"));
}

/// Keys and the host key can change while the guest runs.
#[tokio::test]
async fn keys_change_at_runtime() {
    let server = Server::start().await;
    assert!(server.ssh("tester", &["true"]).await.status.success());
    server.configure(Vec::new()).await;
    assert!(!server.ssh("tester", &["true"]).await.status.success());
    let (key, public_key) = key_pair();
    server.write("key", &key);
    server.configure(vec![public_key]).await;
    assert!(server.ssh("tester", &["true"]).await.status.success());
}

/// `authorized_keys` counts only if other users cannot write it.
#[tokio::test]
async fn authorized_keys_need_safe_permissions() {
    let server = Server::start().await;
    let (key, public_key) = key_pair();
    server.write("key", &key);
    let home = server.fixture.root.home();
    let ssh = home.join(".ssh");
    std::fs::create_dir(&ssh).unwrap();
    let keys = ssh.join("authorized_keys");
    let enters = async |line: &str, mode: u32| {
        std::fs::write(&keys, line).unwrap();
        std::fs::set_permissions(&keys, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        server.ssh("tester", &["true"]).await.status.success()
    };
    assert!(enters(&format!("# mine\n{public_key}\n"), 0o644).await);
    assert!(!enters(&format!("command=\"false\" {public_key}\n"), 0o644).await);
    assert!(!enters(&format!("restrict {public_key}\n"), 0o644).await);
    assert!(!enters(&public_key, 0o666).await);
}

/// Files are copied both ways.
#[tokio::test]
async fn files_are_copied_both_ways() {
    let server = Server::start().await;
    let data: Vec<u8> = (0..5_000_000_u32).map(|index| (index * 7 + (index >> 10)) as u8).collect();
    std::fs::write(server.path("big"), &data).unwrap();
    let far = |name: &str| format!("tester@127.0.0.1:{name}");
    // The modern protocol, and the old one if the host has its program.
    for old in [false, true] {
        let (there, back) = (format!("there-{old}"), server.path(&format!("back-{old}")));
        for (from, to) in
            [(server.path("big").display().to_string(), far(&there)), (far(&there), back.display().to_string())]
        {
            let mut arguments = server.options();
            arguments.extend(["-P".into(), server.port.to_string(), "-q".into()]);
            if old {
                arguments.push("-O".into());
            }
            arguments.extend([from, to]);
            let output = server.run("scp", arguments).await;
            assert!(output.status.success(), "{output:?}");
        }
        assert!(std::fs::read(&back).unwrap() == data);
        assert!(server.fixture.root.home().join(&there).exists());
    }
}

/// `rsync` works if the host has it.
#[tokio::test]
async fn rsync_works() {
    if !Path::new("/usr/bin/rsync").exists() {
        eprintln!("skipped: this host has no rsync");
        return;
    }
    let server = Server::start().await;
    std::fs::create_dir(server.path("tree")).unwrap();
    std::fs::write(server.path("tree/file"), "contents").unwrap();
    let shell = format!("ssh -p {} {}", server.port, server.options().join(" "));
    let from = server.path("tree").display().to_string();
    let output = server.run("rsync", vec!["-r".into(), "-e".into(), shell, from, "tester@127.0.0.1:".into()]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.fixture.root.read("home/tester/tree/file"), "contents");
}

/// Connections are forwarded from inside the instance.
#[tokio::test]
async fn ports_are_forwarded() {
    let server = Server::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"from the inside").await.unwrap();
    });
    let mut arguments = server.options();
    let port = server.port.to_string();
    arguments.extend(["-W".into(), target, "-p".into(), port, "tester@127.0.0.1".into()]);
    let output = server.run("ssh", arguments).await;
    assert_eq!(text(&output.stdout), "from the inside", "{output:?}");
    answering.await.unwrap();
}

/// An agent with a key; it ends with the test.
struct SshAgent(std::process::Child);

impl Drop for SshAgent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client's agent is available inside the instance.
#[tokio::test]
async fn agent_is_forwarded() {
    let server = Server::start().await;
    let socket = server.path("agent");
    let agent =
        Command::new("ssh-agent").args(["-D", "-a"]).arg(&socket).stdout(std::process::Stdio::null()).spawn().unwrap();
    let _agent = SshAgent(agent);
    // The socket exists a moment before the agent listens on it.
    let listens = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
    crate::fixture::eventually("the agent listens", listens).await;
    let added =
        Command::new("ssh-add").arg("-q").arg(server.path("key")).env("SSH_AUTH_SOCK", &socket).status().unwrap();
    assert!(added.success());
    let mut arguments = vec![format!("SSH_AUTH_SOCK={}", socket.display()), "ssh".into(), "-A".into()];
    arguments.extend(server.options());
    arguments.extend(["-p".into(), server.port.to_string(), "tester@127.0.0.1".into(), "ssh-add -l".into()]);
    let output = server.run("env", arguments).await;
    assert!(text(&output.stdout).contains("(ED25519)"), "{output:?}");
    let output = server.ssh("tester", &["ssh-add -l"]).await;
    assert!(!output.status.success(), "an agent that was not forwarded is not there: {output:?}");
}

/// A terminal is allocated on request.
#[tokio::test]
async fn terminal_is_allocated() {
    let server = Server::start().await;
    let output = server.ssh("tester", &["-tt", "tty; echo $TERM"]).await;
    assert!(text(&output.stdout).starts_with("/dev/pts/"), "{output:?}");
}
