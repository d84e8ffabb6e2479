//! A WebSocket client that behaves like the stock client: it sends its key, reads frames, runs commands, and sees the
//! close.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tarn_server::Listening;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::support::harness::World;

/// Nothing takes so long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// The world behind a real socket, for as long as this is held.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Served {
    pub(crate) fn new(world: &World) -> Served {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let router = world.router.clone();
        let serving = tokio::spawn(tarn_server::serve(
            listener,
            router,
            Listening::default(),
            std::future::pending(),
            Duration::ZERO,
        ));
        Served { address, serving }
    }

    /// A socket at a path, on which the key was sent.
    pub(crate) async fn open(&self, path: &str, key: &str) -> Peer {
        let mut peer = self.silent(path).await;
        peer.say(&json!({ "TENSORPOOL_KEY": key })).await;
        peer
    }

    /// A socket at a path.
    pub(crate) async fn silent(&self, path: &str) -> Peer {
        let (socket, _) = connect_async(format!("ws://{}{path}", self.address)).await.unwrap();
        Peer { socket }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The client's end of a socket.
pub(crate) struct Peer {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

/// What came.
#[derive(Debug)]
pub(crate) enum Received {
    /// A frame.
    Frame(Value),
    /// The close, with its code and its reason.
    Close(u16, String),
    /// The end of the connection without a close.
    Broken,
}

impl Peer {
    /// Sends a frame.
    pub(crate) async fn say(&mut self, frame: &Value) {
        self.say_text(&frame.to_string()).await;
    }

    pub(crate) async fn say_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// What comes next.
    pub(crate) async fn next(&mut self) -> Received {
        loop {
            match tokio::time::timeout(DEADLINE, self.socket.next()).await.expect("nothing came") {
                Some(Ok(Message::Text(text))) => {
                    assert!(text.len() < 1 << 20, "the stock client refuses this frame");
                    return Received::Frame(serde_json::from_str(&text).unwrap());
                }
                Some(Ok(Message::Close(Some(frame)))) => {
                    // The handshake ends here; what comes after it is the end of the connection.
                    let _ = self.socket.flush().await;
                    return Received::Close(frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return Received::Broken,
            }
        }
    }

    /// The next thing, which is a frame.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.next().await {
            Received::Frame(frame) => frame,
            other => panic!("{other:?} instead of a frame"),
        }
    }

    /// All frames until the close, and its code.
    pub(crate) async fn rest(&mut self) -> (Vec<Value>, u16) {
        let mut frames = Vec::new();
        loop {
            match self.next().await {
                Received::Frame(frame) => frames.push(frame),
                Received::Close(code, reason) => {
                    assert!(reason.len() <= 123);
                    return (frames, code);
                }
                Received::Broken => panic!("no close after {frames:?}"),
            }
        }
    }

    /// The refusal of a socket: the one frame, and the code of the close.
    pub(crate) async fn refusal(&mut self) -> (String, u16) {
        let (frames, code) = self.rest().await;
        let [frame] = frames.as_slice() else { panic!("one frame, not {frames:?}") };
        assert_eq!(frame["status"], "error");
        (frame["message"].as_str().unwrap().to_owned(), code)
    }

    /// Runs the command of a frame in a directory, as the stock client does, and sends back how it ended.
    pub(crate) async fn obey(&mut self, frame: &Value, directory: &Path) -> Output {
        let command = frame["command"].as_str().unwrap_or_else(|| panic!("no command in {frame}")).to_owned();
        let output = run(&command, directory, |_| {}).await;
        self.answer(&command, &output).await;
        output
    }

    /// Sends back how a command ended.
    pub(crate) async fn answer(&mut self, command: &str, output: &Output) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let result = json!({
            "type": "command_result",
            "command": command,
            "exit_code": output.status.code().unwrap_or(-1),
            "command_stdout": text(&output.stdout),
            "command_stderr": text(&output.stderr),
        });
        self.say(&result).await;
    }
}

/// Runs a command by the shell in a directory.
pub(crate) async fn run(
    command: &str,
    directory: &Path,
    change: impl FnOnce(&mut std::process::Command) + Send,
) -> Output {
    let mut shell = std::process::Command::new("/bin/sh");
    shell.arg("-c").arg(command).current_dir(directory).stdin(std::process::Stdio::null());
    change(&mut shell);
    tokio::task::spawn_blocking(move || shell.output().unwrap()).await.unwrap()
}
