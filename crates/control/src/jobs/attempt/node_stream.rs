//! One stream from a node: forwards output and events to the attempt, and tells the guest what is stored.

use std::time::Duration;

use bytes::Bytes;
use tarn_driver::GuestStream;
use tarn_link::{Error, Frame, FromJob, ToJob, Writer};
use tokio::io::WriteHalf;
use tokio::sync::watch;

use super::guest_calls::{self, GuestLink, sanitize_guest_text};
use super::node_follower::{NodeEnd, NodeEvent, NodeFollower, StreamEnd};

/// Frames from this size on are forwarded as they are. Smaller ones are copied, because each would keep the buffer of a
/// large frame in memory.
const LARGE_FRAME: usize = 64 << 10;

/// How long a guest may take to accept a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// What has been received on a stream.
struct StreamState {
    /// How many bytes the guest knows to be stored.
    acknowledged: u64,
    has_started: bool,
    received_data: bool,
    has_ended: bool,
}

impl StreamState {
    /// Returns what an error of the stream means.
    fn classify_error(&self, error: Error) -> StreamEnd {
        match error {
            Error::Protocol(_) => StreamEnd::Fault(sanitize_guest_text(&error.to_string())),
            Error::Stream(_) | Error::Refused(_) => self.broken_stream(&error.to_string()),
        }
    }

    fn broken_stream(&self, why: &str) -> StreamEnd {
        StreamEnd::Broken { why: sanitize_guest_text(why), received_data: self.received_data }
    }
}

impl NodeFollower {
    /// Follows the stream for as long as it lasts.
    pub(super) async fn follow_stream(&mut self, link: &mut GuestLink, streams: &watch::Sender<u32>) -> StreamEnd {
        let acknowledged = self.offset;
        let mut state = StreamState { acknowledged, has_started: false, received_data: false, has_ended: false };
        match self.read_frames(link, streams, &mut state).await {
            StreamEnd::Done => StreamEnd::Done,
            _ if state.has_ended => self.dismiss_after_break().await,
            end => end,
        }
    }

    async fn read_frames(
        &mut self,
        (reader, writer): &mut GuestLink,
        streams: &watch::Sender<u32>,
        state: &mut StreamState,
    ) -> StreamEnd {
        loop {
            let frame = tokio::select! {
                frame = reader.read() => frame,
                changed = self.signal.changed() => {
                    if changed.is_err() {
                        return StreamEnd::Done;
                    }
                    match self.send_signal(writer, state).await {
                        Some(end) => return end,
                        None => continue,
                    }
                }
            };
            match frame {
                Ok(Some(Frame::Data(data))) if !data.is_empty() && state.has_started && !state.has_ended => {
                    state.received_data = true;
                    if !self.forward_data(data).await {
                        return StreamEnd::Done;
                    }
                }
                Ok(Some(Frame::Message(message))) => {
                    let end = match Frame::parse(&message) {
                        Ok(message) => self.handle_message(message, streams, state).await,
                        Err(error) => Some(state.classify_error(error)),
                    };
                    if let Some(end) = end {
                        return end;
                    }
                }
                Ok(Some(_)) => return StreamEnd::Fault("the guest sent an unexpected frame".to_owned()),
                Ok(None) => return state.broken_stream("the stream ended"),
                Err(error) => return state.classify_error(error),
            }
        }
    }

    /// Handles a message. Returns why the stream has ended, if it has.
    async fn handle_message(
        &mut self,
        message: FromJob,
        streams: &watch::Sender<u32>,
        state: &mut StreamState,
    ) -> Option<StreamEnd> {
        let is_delivered = match message {
            FromJob::Started if !state.has_started => {
                state.has_started = true;
                self.may_start = false;
                streams.send_modify(|streams| *streams += 1);
                self.send_event(NodeEvent::Started).await
            }
            FromJob::NotStarted { reason, may_work_later } if !state.has_started => {
                return Some(StreamEnd::Ended(NodeEnd::NotStarted {
                    reason: sanitize_guest_text(&reason),
                    may_work_later,
                }));
            }
            FromJob::Ended(end) if !state.has_ended => {
                state.has_ended = true;
                self.send_event(NodeEvent::Ended(NodeEnd::Reported(end))).await
            }
            other => return Some(StreamEnd::Fault(format!("the guest sent an unexpected message: {other:?}"))),
        };
        (!is_delivered).then_some(StreamEnd::Done)
    }

    /// Tells the guest what has changed in the signal. Returns why the stream has ended, if it has.
    async fn send_signal(
        &mut self,
        writer: &mut Writer<WriteHalf<GuestStream>>,
        state: &mut StreamState,
    ) -> Option<StreamEnd> {
        let signal = *self.signal.borrow_and_update();
        let message = if signal.done {
            ToJob::Done
        } else if signal.acknowledged > state.acknowledged {
            state.acknowledged = signal.acknowledged;
            ToJob::Acknowledged { offset: signal.acknowledged }
        } else {
            return None;
        };
        match tokio::time::timeout(WRITE_TIMEOUT, writer.message(&message)).await {
            Ok(Ok(())) => signal.done.then_some(StreamEnd::Done),
            Ok(Err(error)) => Some(state.classify_error(error)),
            Err(_) => Some(state.broken_stream("the guest does not accept messages")),
        }
    }

    /// Dismisses the attempt end a new stream, because this one broke before the guest knew that the end is stored.
    async fn dismiss_after_break(&mut self) -> StreamEnd {
        if self.signal.wait_for(|signal| signal.done).await.is_ok()
            && let Err(error) =
                guest_calls::dismiss_attempt(&self.control, &self.instance, &self.job, self.order.attempt).await
        {
            tracing::debug!(job = %self.job, instance = %self.instance, %error, "left to the next sweep");
        }
        StreamEnd::Done
    }

    /// Forwards output to the attempt. Returns whether the attempt still listens.
    async fn forward_data(&mut self, data: Bytes) -> bool {
        let length = data.len();
        let permit = self.shared.memory.acquire(&self.job, length).await;
        let data = if length < LARGE_FRAME { Bytes::copy_from_slice(&data) } else { data };
        self.offset += length as u64;
        self.send_event(NodeEvent::Data(data, permit)).await
    }
}
