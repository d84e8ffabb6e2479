//! Forwarded connections, in all directions.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixStream};
use tokio::task::JoinHandle;

use crate::server::{TestServer, finish, free_port, noise, text, until};

/// Sends everything back in capitals after the end of input, on a port of this host.
async fn capitals() -> (u16, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await.unwrap();
                stream.write_all(&all.to_ascii_uppercase()).await.unwrap();
            });
        }
    });
    (port, task)
}

async fn ask(port: u16, question: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(question).await.ok()?;
    stream.shutdown().await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    (!answer.is_empty()).then_some(answer)
}

/// Local and remote ports are forwarded.
#[tokio::test]
async fn local_and_remote_ports_are_forwarded() {
    let server = TestServer::start().await;
    let (service, _task) = capitals().await;
    for direction in ["-L", "-R"] {
        let port = free_port();
        let forward = format!("127.0.0.1:{port}:127.0.0.1:{service}");
        let _ssh = server
            .ssh(&["-N", "-o", "ExitOnForwardFailure=yes", direction, &forward, "ubuntu@127.0.0.1"])
            .spawn()
            .unwrap();
        let answer = until("the port leads through", async || ask(port, b"hello").await).await;
        assert_eq!(text(&answer), "HELLO", "{direction}");
        let (many, question) = (20, noise(100_000));
        let asked = (0..many).map(|_| ask(port, &question));
        for answer in futures::future::join_all(asked).await {
            assert!(answer.is_some_and(|answer| answer == question.to_ascii_uppercase()), "{direction}");
        }
    }
}

/// A remote port can be chosen by the target, and cancelled.
#[tokio::test]
async fn remote_port_is_chosen_and_cancelled() {
    let server = TestServer::start().await;
    let (service, _task) = capitals().await;
    let control = server.path("control").display().to_string();
    let _master = server.ssh(&["-M", "-S", &control, "-N", "ubuntu@127.0.0.1"]).spawn().unwrap();
    until("the master listens", async || server.path("control").exists().then_some(())).await;
    let forward = format!("0:127.0.0.1:{service}");
    let output = finish(server.ssh(&["-S", &control, "-O", "forward", "-R", &forward, "ubuntu@127.0.0.1"]), b"").await;
    let port: u16 = text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(ask(port, b"hello").await.as_deref(), Some(&b"HELLO"[..]));
    let taken = format!("127.0.0.1:{port}:127.0.0.1:{service}");
    let output = finish(server.ssh(&["-S", &control, "-O", "cancel", "-R", &forward, "ubuntu@127.0.0.1"]), b"").await;
    assert!(output.status.success(), "{taken}: {}", text(&output.stderr));
    // A connection at the last moment may never be announced; the target of these tests keeps it open.
    let refused = async || tokio::time::timeout(Duration::from_secs(1), ask(port, b"hello")).await == Ok(None);
    until("nothing listens any more", async || refused().await.then_some(())).await;
}

/// A SOCKS proxy connects from the target.
#[tokio::test]
async fn proxy_connects_from_the_target() {
    let server = TestServer::start().await;
    let (service, _task) = capitals().await;
    let port = free_port();
    let _ssh = server.ssh(&["-N", "-D", &format!("127.0.0.1:{port}"), "ubuntu@127.0.0.1"]).spawn().unwrap();
    let stream = until("the proxy listens", async || TcpStream::connect(("127.0.0.1", port)).await.ok()).await;
    let mut stream = stream;
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend_from_slice(&service.to_be_bytes());
    stream.write_all(&request).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..4], [5, 0, 5, 0], "{answer:?}");
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert_eq!(all, "HELLO");
}

/// A connection to a closed port is refused.
#[tokio::test]
async fn closed_port_is_refused() {
    let server = TestServer::start().await;
    // The port is bound without a listener, so that no other test can take it.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nobody = held.local_addr().unwrap().to_string();
    let output = finish(server.ssh(&["-W", &nobody, "ubuntu@127.0.0.1"]), b"").await;
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("refused"), "{}", text(&output.stderr));
}

/// The client's agent is available on the target.
#[tokio::test]
async fn agent_is_available_on_the_target() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server).await;
    let output = agent.run(&server, "ssh-add -L").await;
    let key = std::fs::read_to_string(server.path("other.pub")).unwrap();
    assert_eq!(text(&output.stdout), key, "{}", text(&output.stderr));
}

/// A client waits for the end of every channel to it, including those that outlive their session.
#[tokio::test]
async fn agent_connection_ends_after_its_session() {
    let server = TestServer::start().await;
    let agent = Agent::start(&server).await;
    let holding = "import os, socket, time
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ['SSH_AUTH_SOCK'])
agent.sendall(bytes([0, 0, 0, 1, 11]))
assert agent.recv(5)[4] == 12
if os.fork() == 0:
    os.closerange(0, 3)
    time.sleep(0.5)
";
    let output = agent.run(&server, &format!("exec python3 -c \"{holding}\"")).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// An agent of the client with one key.
struct Agent {
    socket: String,
    _process: tokio::process::Child,
}

impl Agent {
    async fn start(server: &TestServer) -> Agent {
        let socket = server.path("agent").display().to_string();
        let mut agent = tokio::process::Command::new("ssh-agent");
        let agent = agent.args(["-D", "-a", &socket]).stdout(std::process::Stdio::null()).kill_on_drop(true);
        let process = agent.spawn().unwrap();
        // The socket exists a moment before the agent listens on it.
        until("the agent listens", async || UnixStream::connect(&socket).await.ok()).await;
        let mut add = tokio::process::Command::new("ssh-add");
        add.env("SSH_AUTH_SOCK", &socket).arg("-q").arg(server.path("other"));
        assert!(add.status().await.unwrap().success());
        Agent { socket, _process: process }
    }

    /// Runs a command line on the target with the agent forwarded.
    async fn run(&self, server: &TestServer, line: &str) -> std::process::Output {
        // The first value of an option counts, and the common options disable the agent.
        let identity = format!("IdentityAgent={}", self.socket);
        let arguments = ["-o", &identity, "-A"].map(str::to_owned).into_iter().chain(server.options());
        finish(crate::server::command("ssh", arguments.collect(), &["ubuntu@127.0.0.1", line]), b"").await
    }
}
