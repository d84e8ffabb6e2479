//! One stream from a node: passes on what comes, and says to the guest what is written down.

use std::time::Duration;

use bytes::Bytes;
use tarn_driver::GuestStream;
use tarn_link::{Error, Frame, FromJob, ToJob, Writer};
use tokio::io::WriteHalf;
use tokio::sync::watch;

use super::guests::{self, Link, plain};
use super::node::{End, Event, Follower, Over};

/// Frames from here on are passed on as they are; smaller ones are copied, because each would hold the memory of a large one.
const LARGE_FRAME: usize = 64 << 10;

/// How long a guest may take to hear something.
const HEARING: Duration = Duration::from_secs(60);

/// What has come over a stream.
struct Heard {
    /// How much the guest knows to be written down.
    acknowledged: u64,
    has_started: bool,
    brought: bool,
    has_ended: bool,
}

impl Heard {
    /// What a failure of the stream means.
    fn over(&self, error: Error) -> Over {
        match error {
            Error::Protocol(_) => Over::Fault(plain(&error.to_string())),
            Error::Stream(_) | Error::Refused(_) => self.broken(&error.to_string()),
        }
    }

    fn broken(&self, why: &str) -> Over {
        Over::Broken { why: plain(why), brought: self.brought }
    }
}

impl Follower {
    /// Listens for as long as the stream lasts.
    pub(super) async fn listen(&mut self, link: &mut Link, links: &watch::Sender<u32>) -> Over {
        let acknowledged = self.offset;
        let mut heard = Heard { acknowledged, has_started: false, brought: false, has_ended: false };
        match self.listen_on(link, links, &mut heard).await {
            Over::Done => Over::Done,
            _ if heard.has_ended => self.dismiss().await,
            over => over,
        }
    }

    async fn listen_on(&mut self, (reader, writer): &mut Link, links: &watch::Sender<u32>, heard: &mut Heard) -> Over {
        loop {
            let frame = tokio::select! {
                frame = reader.read() => frame,
                changed = self.told.changed() => {
                    if changed.is_err() {
                        return Over::Done;
                    }
                    match self.say(writer, heard).await {
                        Some(over) => return over,
                        None => continue,
                    }
                }
            };
            match frame {
                Ok(Some(Frame::Data(data))) if !data.is_empty() && heard.has_started && !heard.has_ended => {
                    heard.brought = true;
                    if !self.pass(data).await {
                        return Over::Done;
                    }
                }
                Ok(Some(Frame::Message(message))) => {
                    let said = Frame::parse(&message);
                    let over = match said {
                        Ok(said) => self.hear(said, links, heard).await,
                        Err(error) => Some(heard.over(error)),
                    };
                    if let Some(over) = over {
                        return over;
                    }
                }
                Ok(Some(_)) => return Over::Fault("it sent what does not belong here".to_owned()),
                Ok(None) => return heard.broken("the stream ended"),
                Err(error) => return heard.over(error),
            }
        }
    }

    /// Hears a message; says why the stream is over, if it is.
    async fn hear(&mut self, said: FromJob, links: &watch::Sender<u32>, heard: &mut Heard) -> Option<Over> {
        let is_heard = match said {
            FromJob::Started if !heard.has_started => {
                heard.has_started = true;
                self.may_start = false;
                links.send_modify(|links| *links += 1);
                self.tell(Event::Started).await
            }
            FromJob::NotStarted { reason, may_work_later } if !heard.has_started => {
                return Some(Over::Ended(End::NotStarted { reason: plain(&reason), may_work_later }));
            }
            FromJob::Ended(end) if !heard.has_ended => {
                heard.has_ended = true;
                self.tell(Event::Ended(End::Said(end))).await
            }
            other => return Some(Over::Fault(format!("it said {other:?} when that cannot be"))),
        };
        (!is_heard).then_some(Over::Done)
    }

    /// Says to the guest what it should know by now; says why the stream is over, if it is.
    async fn say(&mut self, writer: &mut Writer<WriteHalf<GuestStream>>, heard: &mut Heard) -> Option<Over> {
        let told = *self.told.borrow_and_update();
        let message = match told.done {
            true => ToJob::Done,
            false if told.acknowledged > heard.acknowledged => {
                heard.acknowledged = told.acknowledged;
                ToJob::Acknowledged { offset: told.acknowledged }
            }
            false => return None,
        };
        match tokio::time::timeout(HEARING, writer.message(&message)).await {
            Ok(Ok(())) => told.done.then_some(Over::Done),
            Ok(Err(error)) => Some(heard.over(error)),
            Err(_) => Some(heard.broken("it does not listen")),
        }
    }

    /// The stream is gone before the guest could be told that the end is written down.
    async fn dismiss(&mut self) -> Over {
        if self.told.wait_for(|told| told.done).await.is_ok()
            && let Err(trouble) = guests::dismiss(&self.control, &self.instance, &self.job, self.order.attempt).await
        {
            tracing::debug!(job = %self.job, instance = %self.instance, %trouble, "left to the sweep");
        }
        Over::Done
    }

    /// Passes data on; whether the driver of the job is still there to hear it.
    async fn pass(&mut self, data: Bytes) -> bool {
        let length = data.len();
        let Some(held) = self.memory.take(length).await else { return false };
        let data = if length < LARGE_FRAME { Bytes::copy_from_slice(&data) } else { data };
        self.offset += length as u64;
        self.tell(Event::Data(data, held)).await
    }
}
