//! Relays data between a channel and a link stream.

use tarn_link::frames::Frame;
use tarn_link::opening::{self, Opened};
use tarn_link::{Purpose, Reader, Reply, Stream, Writer};
use tokio::io::{AsyncRead, AsyncWrite};

use std::sync::Arc;
use std::time::Duration;

use russh::server::{Handle, Msg};
use russh::{ChannelId, ChannelWriteHalf};

use super::channel_buffer::{ChannelBuffer, ChannelBuffers, ChannelInput};
use crate::Target;

/// How long a target may take to reply.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// The maximum length of a target's message that is shown.
pub(crate) const MAX_TEXT_CHARS: usize = 300;

/// A link stream to a target.
pub(crate) type LinkStream = Box<dyn Stream>;

/// Dials a target and opens a stream; the error is shown to the client.
pub(crate) async fn open_link(target: &dyn Target, purpose: Purpose) -> Result<(Reply, Opened<LinkStream>), String> {
    let opened = async {
        let stream = target.dial().await.map_err(|e| e.to_string())?;
        opening::open(stream, purpose).await.map_err(|e| tarn_base::plain(&e.to_string(), MAX_TEXT_CHARS).into_owned())
    };
    match tokio::time::timeout(OPEN_TIMEOUT, opened).await {
        Ok(opened) => opened,
        Err(_) => Err("the instance does not respond".into()),
    }
}

/// An open channel of a client.
pub(crate) struct OpenChannel {
    /// Sends everything except data.
    pub(crate) handle: Handle,
    /// Sends data, as the client's window allows.
    pub(crate) output: ChannelWriteHalf<Msg>,
    /// The buffered input of the client.
    pub(crate) buffer: Arc<ChannelBuffer>,
    buffers: Arc<ChannelBuffers>,
}

impl OpenChannel {
    pub(crate) fn new(handle: Handle, output: ChannelWriteHalf<Msg>, buffers: Arc<ChannelBuffers>) -> OpenChannel {
        let buffer = buffers.get_or_create(output.id());
        OpenChannel { handle, output, buffer, buffers }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.output.id()
    }
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        self.buffers.end_channel(self.output.id());
    }
}

/// Forwards input to the target: until its end if `until_eof` is set, else until the channel is closed. A target that
/// no longer reads does not stop this, because its remaining output is still wanted.
pub(crate) async fn forward_input<W: AsyncWrite + Unpin>(
    buffer: &ChannelBuffer,
    writer: &mut Writer<W>,
    until_eof: bool,
) -> InputEnd {
    let mut is_broken = false;
    while let Some(item) = buffer.next_input().await {
        let sent = match &item {
            _ if is_broken => Ok(()),
            ChannelInput::Data(data) => writer.data(data).await,
            ChannelInput::Event(event) => writer.message(event).await,
            ChannelInput::Eof => writer.eof().await,
        };
        is_broken |= sent.is_err();
        match item {
            ChannelInput::Data(data) => buffer.release_bytes(data.len()),
            ChannelInput::Eof if until_eof => return InputEnd::Eof,
            ChannelInput::Eof | ChannelInput::Event(_) => {}
        }
    }
    InputEnd::Closed
}

/// How the input ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputEnd {
    Eof,
    Closed,
}

/// Relays a connection both ways until both sides have sent their end or one is gone, then closes the channel.
pub(crate) async fn relay_connection(channel: OpenChannel, (mut reader, mut writer): Opened<LinkStream>) {
    {
        let feed = forward_input(&channel.buffer, &mut writer, true);
        let drain = forward_output(&channel, &mut reader);
        tokio::pin!(feed, drain);
        tokio::select! {
            fed = &mut feed => match fed {
                InputEnd::Closed => return,
                InputEnd::Eof => tokio::select! {
                    _ = &mut drain => {}
                    () = channel.buffer.wait_until_closed() => return,
                },
            },
            drained = &mut drain => match drained {
                OutputEnd::Eof => {
                    if feed.await == InputEnd::Closed {
                        return;
                    }
                }
                OutputEnd::Gone => {}
            },
        }
    }
    // After both ends, the client usually closes the channel itself.
    let _ = tokio::time::timeout(Duration::from_secs(2), channel.buffer.wait_until_closed()).await;
    let _ = channel.handle.close(channel.id()).await;
}

enum OutputEnd {
    Eof,
    Gone,
}

async fn forward_output<R: AsyncRead + Unpin>(channel: &OpenChannel, reader: &mut Reader<R>) -> OutputEnd {
    let drained = loop {
        match reader.read().await {
            Ok(Some(Frame::Data(data))) => {
                if channel.output.data_bytes(data).await.is_err() {
                    return OutputEnd::Gone;
                }
            }
            Ok(Some(Frame::Eof)) => break OutputEnd::Eof,
            Ok(Some(Frame::Message(_) | Frame::Stderr(_)) | None) | Err(_) => break OutputEnd::Gone,
        }
    };
    let _ = channel.handle.eof(channel.id()).await;
    drained
}
