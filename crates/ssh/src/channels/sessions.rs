//! Session channels: a program on the target.

use std::sync::Arc;

use russh::{ChannelId, Sig};
use tarn_link::opening::Opened;
use tarn_link::{Endpoint, Frame, FromGuest, Purpose, Session};
use tokio::task::JoinSet;

use super::channel_buffer::ChannelBuffers;
use super::forwards::{self, Origin};
use super::relay::{self, InputEnd, LinkStream, OpenChannel};
use crate::Target;

/// The exit code of a session whose program did not start; `ssh` uses the same.
const FAILED_EXIT_CODE: u32 = 255;

/// Runs a session to its end: sends the output, the exit status, and the end of the channel.
pub(crate) async fn run_session(
    channel: OpenChannel,
    target: Arc<dyn Target>,
    buffers: Arc<ChannelBuffers>,
    session: Session,
) {
    let offers_agent = session.agent;
    let mut agents = JoinSet::new();
    let end = match relay::open_link(&*target, Purpose::Session(Box::new(session))).await {
        Ok((_, stream)) => {
            relay_session(&channel, &target, &buffers, stream, offers_agent.then_some(&mut agents)).await
        }
        Err(reason) => Some(SessionEnd::Failed(reason)),
    };
    // Without an end, the client has closed the channel.
    if let Some(end) = end {
        close_session(&channel, end).await;
    }
    drop(channel);
    // A client waits for the end of every channel to its agent: if one were just dropped, the client would wait
    // forever.
    while agents.join_next().await.is_some() {}
}

/// How a session ended.
#[derive(Debug)]
enum SessionEnd {
    Exited(u32),
    Killed { signal: String, core: bool },
    Failed(String),
}

/// Relays a session; `None` if the client has closed the channel. Connections to the client's agent, if it was offered,
/// run in `agents`.
async fn relay_session(
    channel: &OpenChannel,
    target: &Arc<dyn Target>,
    buffers: &Arc<ChannelBuffers>,
    (mut reader, mut writer): Opened<LinkStream>,
    mut agents: Option<&mut JoinSet<()>>,
) -> Option<SessionEnd> {
    let output = async {
        loop {
            let sent = match reader.read().await {
                Ok(Some(Frame::Data(data))) => channel.output.data_bytes(data).await,
                Ok(Some(Frame::Stderr(data))) => channel.output.extended_data_bytes(1, data).await,
                // Redundant: the end of the channel implies it.
                Ok(Some(Frame::Eof)) => Ok(()),
                Ok(Some(Frame::Message(message))) => match Frame::parse(&message) {
                    Ok(FromGuest::Exited { code }) => return Some(SessionEnd::Exited(code)),
                    Ok(FromGuest::Killed { signal, core }) => {
                        let signal = tarn_base::plain(&signal, relay::MAX_TEXT_CHARS).into_owned();
                        return Some(SessionEnd::Killed { signal, core });
                    }
                    Ok(FromGuest::Incoming { id, from }) => {
                        // The target may only use an agent that the client has offered.
                        if let (Some(agents), Endpoint::Agent) = (&mut agents, from) {
                            while agents.try_join_next().is_some() {}
                            if agents.len() < forwards::MAX_AGENT_CONNECTIONS {
                                let (target, buffers) = (target.clone(), buffers.clone());
                                agents.spawn(forwards::accept_announced(
                                    channel.handle.clone(),
                                    target,
                                    buffers,
                                    id,
                                    Origin::Agent,
                                ));
                            }
                        }
                        Ok(())
                    }
                    Err(error) => return Some(SessionEnd::Failed(error.to_string())),
                },
                Ok(None) => return Some(SessionEnd::Failed("the instance ended the session".into())),
                Err(error) => return Some(SessionEnd::Failed(error.to_string())),
            };
            if sent.is_err() {
                return None;
            }
        }
    };
    tokio::select! {
        end = output => end,
        fed = relay::forward_input(&channel.buffer, &mut writer, false) => match fed {
            InputEnd::Closed | InputEnd::Eof => None,
        },
    }
}

async fn close_session(channel: &OpenChannel, end: SessionEnd) {
    let (id, handle) = (channel.id(), &channel.handle);
    let _ = match end {
        SessionEnd::Exited(code) => handle.exit_status_request(id, code).await,
        SessionEnd::Killed { signal, core } => {
            handle.exit_signal_request(id, parse_signal(signal), core, String::new(), String::new()).await
        }
        SessionEnd::Failed(reason) => report_failure(channel, id, &reason).await,
    };
    let _ = handle.eof(id).await;
    let _ = handle.close(id).await;
}

/// Reports to the client why the session failed. A closed window must not keep the channel open.
async fn report_failure(channel: &OpenChannel, id: ChannelId, reason: &str) -> Result<(), ()> {
    let message = channel.output.extended_data_bytes(1, format!("{reason}\r\n"));
    tokio::select! {
        _ = message => {}
        () = channel.buffer.wait_until_closed() => {}
    }
    channel.handle.exit_status_request(id, FAILED_EXIT_CODE).await
}

fn parse_signal(name: String) -> Sig {
    match name.as_str() {
        "ABRT" => Sig::ABRT,
        "ALRM" => Sig::ALRM,
        "FPE" => Sig::FPE,
        "HUP" => Sig::HUP,
        "ILL" => Sig::ILL,
        "INT" => Sig::INT,
        "KILL" => Sig::KILL,
        "PIPE" => Sig::PIPE,
        "QUIT" => Sig::QUIT,
        "SEGV" => Sig::SEGV,
        "TERM" => Sig::TERM,
        "USR1" => Sig::USR1,
        _ => Sig::Custom(name),
    }
}

/// Returns the SSH name of a signal.
pub(crate) fn signal_name(signal: Sig) -> String {
    match signal {
        Sig::Custom(name) => name,
        // The variants are named like the signals.
        other => format!("{other:?}"),
    }
}
