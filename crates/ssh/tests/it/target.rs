//! A target for tests: it runs programs as the user of the tests, and connects and listens on this host.

use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tarn_link::opening;
use tarn_link::{Endpoint, Frame, FromGuest, Program, Purpose, Reader, Reply, Session, Stream, ToGuest, Writer};
use tarn_ssh::Target;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::process::Command;

type Input = Reader<ReadHalf<UnixStream>>;
type Output = Writer<WriteHalf<UnixStream>>;

/// The target; clones share its state.
#[derive(Clone, Default)]
pub(crate) struct LocalTarget {
    announced: Arc<Mutex<HashMap<u64, Box<dyn Stream>>>>,
    last: Arc<AtomicU64>,
}

impl Target for LocalTarget {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(async {
            let (ours, theirs) = UnixStream::pair()?;
            tokio::spawn(self.clone().answer(theirs));
            Ok(Box::new(ours) as Box<dyn Stream>)
        })
    }
}

impl LocalTarget {
    async fn answer(self, stream: UnixStream) {
        let (input, output) = tokio::io::split(stream);
        let (mut input, mut output) = (Reader::new(input), Writer::new(output));
        let _ = match opening::accept(&mut input, &mut output).await {
            Ok(Purpose::Session(session)) if session.program == Program::Exec(b"describe".to_vec()) => {
                describe(*session, input, output).await
            }
            Ok(Purpose::Session(session)) => self.run(*session, input, output).await,
            Ok(Purpose::Connect(Endpoint::Tcp { host, port })) => match TcpStream::connect((host, port)).await {
                Ok(stream) => carry(stream, input, output).await,
                Err(e) => output.message(&Reply::Refused { reason: e.to_string() }).await,
            },
            Ok(Purpose::Connect(Endpoint::Unix { path })) => match UnixStream::connect(path).await {
                Ok(stream) => carry(stream, input, output).await,
                Err(e) => output.message(&Reply::Refused { reason: e.to_string() }).await,
            },
            Ok(Purpose::Listen(Endpoint::Tcp { port, .. })) => self.listen(port, input, output).await,
            Ok(Purpose::Take { id }) => {
                let stream = self.announced.lock().unwrap().remove(&id);
                carry(stream.expect("it was announced"), input, output).await
            }
            Ok(other) => output.message(&Reply::Refused { reason: format!("not here: {other:?}") }).await,
            Err(e) => Err(e),
        };
    }

    fn announce(&self, stream: impl Stream + 'static, from: Endpoint) -> FromGuest {
        let id = self.last.fetch_add(1, Ordering::Relaxed);
        self.announced.lock().unwrap().insert(id, Box::new(stream));
        FromGuest::Incoming { id, from }
    }

    async fn listen(&self, port: u16, mut input: Input, mut output: Output) -> tarn_link::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        output.message(&Reply::Listening(Endpoint::Tcp { host: "127.0.0.1".into(), port })).await?;
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, from) = accepted?;
                    let from = Endpoint::Tcp { host: from.ip().to_string(), port: from.port() };
                    output.message(&self.announce(stream, from)).await?;
                }
                _ = input.read() => return Ok(()),
            }
        }
    }

    async fn run(&self, session: Session, mut input: Input, mut output: Output) -> tarn_link::Result<()> {
        let mut command = match &session.program {
            Program::Shell => Command::new("/bin/sh"),
            Program::Sftp => Command::new("/usr/lib/openssh/sftp-server"),
            Program::Exec(line) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(String::from_utf8_lossy(line).as_ref());
                command
            }
        };
        let directory = tempfile::tempdir()?;
        let agent = if session.agent {
            let path = directory.path().join("agent");
            command.env("SSH_AUTH_SOCK", &path);
            Some(UnixListener::bind(path)?)
        } else {
            None
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.envs(session.environment).spawn()?;
        let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        output.message(&Reply::Ready).await?;
        let feed = async {
            loop {
                match input.read().await {
                    Ok(Some(Frame::Data(data))) => {
                        if let Some(open) = &mut stdin
                            && open.write_all(&data).await.is_err()
                        {
                            stdin = None;
                        }
                    }
                    Ok(Some(Frame::Eof)) => stdin = None,
                    Ok(Some(Frame::Message(_) | Frame::Stderr(_))) => {}
                    Ok(None) | Err(_) => return,
                }
            }
        };
        let drain = async {
            let (mut data, mut errors) = (vec![0; 128 << 10], vec![0; 4096]);
            while stdout.is_some() || stderr.is_some() {
                tokio::select! {
                    read = read(&mut stdout, &mut data) => output.data(&data[..read]).await?,
                    read = read(&mut stderr, &mut errors) => output.stderr(&errors[..read]).await?,
                    stream = accept_agent(&agent) => output.message(&self.announce(stream, Endpoint::Agent)).await?,
                }
            }
            let status = child.wait().await?;
            let signals = [(1, "HUP"), (2, "INT"), (9, "KILL"), (15, "TERM")];
            output
                .message(&match status.signal() {
                    None => FromGuest::Exited { code: u32::try_from(status.code().unwrap_or(255)).unwrap_or(255) },
                    Some(number) => FromGuest::Killed {
                        signal: signals.iter().find(|known| known.0 == number).map_or("ABRT", |known| known.1).into(),
                        core: false,
                    },
                })
                .await
        };
        // The program ends when the client hangs up.
        tokio::select! { ended = drain => ended, () = feed => Ok(()) }
    }
}

async fn read<R: AsyncRead + Unpin>(from: &mut Option<R>, into: &mut [u8]) -> usize {
    let Some(reader) = from else { return std::future::pending().await };
    let read = reader.read(into).await.unwrap_or(0);
    if read == 0 {
        *from = None;
    }
    read
}

async fn accept_agent(agent: &Option<UnixListener>) -> UnixStream {
    match agent {
        Some(listener) => listener.accept().await.unwrap().0,
        None => std::future::pending().await,
    }
}

/// Describes the session and its events, until there is input.
async fn describe(session: Session, mut input: Input, mut output: Output) -> tarn_link::Result<()> {
    output.message(&Reply::Ready).await?;
    let pty = session.pty.unwrap_or_default();
    let words = format!("{} {}x{} {:?}\n", pty.term, pty.window.columns, pty.window.rows, session.environment);
    output.data(words.as_bytes()).await?;
    loop {
        match input.read().await? {
            Some(Frame::Message(message)) => {
                let words = match Frame::parse(&message)? {
                    ToGuest::Resize(window) => format!("resized {}x{}\n", window.columns, window.rows),
                    ToGuest::Signal(name) => format!("signal {name}\n"),
                };
                output.data(words.as_bytes()).await?;
            }
            Some(Frame::Data(_) | Frame::Eof) => return output.message(&FromGuest::Exited { code: 0 }).await,
            Some(Frame::Stderr(_)) => {}
            None => return Ok(()),
        }
    }
}

async fn carry<S>(stream: S, mut input: Input, mut output: Output) -> tarn_link::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    output.message(&Reply::Ready).await?;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let into = async {
        while let Ok(Some(Frame::Data(data))) = input.read().await {
            if writer.write_all(&data).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    };
    let out = async {
        let mut data = vec![0; 64 << 10];
        while let Ok(read @ 1..) = reader.read(&mut data).await {
            if output.data(&data[..read]).await.is_err() {
                return;
            }
        }
        let _ = output.eof().await;
    };
    tokio::join!(into, out);
    Ok(())
}
