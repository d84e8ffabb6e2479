//! Carries data between a channel and a link stream.

use tarn_link::frames::Frame;
use tarn_link::opening::{self, Opened};
use tarn_link::{Answer, Purpose, Reader, Stream, Writer};
use tokio::io::{AsyncRead, AsyncWrite};

use std::sync::Arc;
use std::time::Duration;

use russh::server::{Handle, Msg};
use russh::{ChannelId, ChannelWriteHalf};

use crate::Target;
use crate::inbox::{Inbox, Inboxes, Item};

/// How long a machine has to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// So much of what a machine says is shown.
const MAX_WORDS: usize = 300;

/// A stream to a machine.
pub(crate) type LinkStream = Box<dyn Stream>;

/// Dials a machine and opens a stream; the error is for a person.
pub(crate) async fn open(machine: &dyn Target, purpose: Purpose) -> Result<(Answer, Opened<LinkStream>), String> {
    let opened = async {
        let stream = machine.dial().await.map_err(|e| e.to_string())?;
        opening::open(stream, purpose).await.map_err(|e| plain(&e.to_string()))
    };
    match tokio::time::timeout(PATIENCE, opened).await {
        Ok(opened) => opened,
        Err(_) => Err("the machine does not answer".into()),
    }
}

/// Words of a machine as they may be shown to a person: not endless, and without what a terminal would take for a command.
pub(crate) fn plain(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect()
}

/// One open channel.
pub(crate) struct Line {
    /// Sends what is not data.
    pub(crate) handle: Handle,
    /// Sends data, as far as the client's window is open.
    pub(crate) output: ChannelWriteHalf<Msg>,
    /// What the client has sent.
    pub(crate) inbox: Arc<Inbox>,
    inboxes: Arc<Inboxes>,
}

impl Line {
    pub(crate) fn new(handle: Handle, output: ChannelWriteHalf<Msg>, inboxes: Arc<Inboxes>) -> Line {
        let inbox = inboxes.of(output.id());
        Line { handle, output, inbox, inboxes }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.output.id()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.inboxes.remove(self.output.id());
    }
}

/// Passes input on: until its end where that is asked for, else until the channel is closed. A machine that no longer
/// reads does not stop this, because its last words are still to be heard.
pub(crate) async fn feed<W: AsyncWrite + Unpin>(inbox: &Inbox, writer: &mut Writer<W>, until_eof: bool) -> Fed {
    let mut is_broken = false;
    while let Some(item) = inbox.next().await {
        let sent = match &item {
            _ if is_broken => Ok(()),
            Item::Data(data) => writer.data(data).await,
            Item::Event(event) => writer.message(event).await,
            Item::Eof => writer.eof().await,
        };
        is_broken |= sent.is_err();
        match item {
            Item::Data(data) => inbox.passed_on(data.len()),
            Item::Eof if until_eof => return Fed::Eof,
            Item::Eof | Item::Event(_) => {}
        }
    }
    Fed::Closed
}

/// How the input ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// The client has no more to say.
    Eof,
    /// The client has closed the channel.
    Closed,
}

/// Carries a connection both ways until both sides have said all, or one is gone; then closes the channel.
pub(crate) async fn relay(line: Line, (mut reader, mut writer): Opened<LinkStream>) {
    {
        let feed = feed(&line.inbox, &mut writer, true);
        let drain = drain(&line, &mut reader);
        tokio::pin!(feed, drain);
        tokio::select! {
            fed = &mut feed => match fed {
                Fed::Closed => return,
                Fed::Eof => tokio::select! {
                    _ = &mut drain => {}
                    () = line.inbox.closed() => return,
                },
            },
            drained = &mut drain => match drained {
                Drained::Eof => {
                    if feed.await == Fed::Closed {
                        return;
                    }
                }
                Drained::Gone => {}
            },
        }
    }
    // Where both have said all, the client closes the channel by itself.
    let _ = tokio::time::timeout(Duration::from_secs(2), line.inbox.closed()).await;
    let _ = line.handle.close(line.id()).await;
}

enum Drained {
    Eof,
    Gone,
}

async fn drain<R: AsyncRead + Unpin>(line: &Line, reader: &mut Reader<R>) -> Drained {
    let drained = loop {
        match reader.read().await {
            Ok(Some(Frame::Data(data))) => {
                if line.output.data_bytes(data).await.is_err() {
                    return Drained::Gone;
                }
            }
            Ok(Some(Frame::Eof)) => break Drained::Eof,
            Ok(Some(Frame::Message(_) | Frame::Stderr(_)) | None) | Err(_) => break Drained::Gone,
        }
    };
    let _ = line.handle.eof(line.id()).await;
    drained
}
