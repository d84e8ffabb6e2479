//! Session channels: a program on the machine.

use std::sync::Arc;

use russh::{ChannelId, Sig};
use tarn_link::opening::Opened;
use tarn_link::{Endpoint, Frame, FromGuest, Purpose, Session};
use tokio::task::JoinSet;

use crate::Target;
use crate::forwards::{self, Origin};
use crate::inbox::Inboxes;
use crate::relay::{self, Fed, Line, LinkStream};

/// The exit code of a session that did not come to its program, as `ssh` itself uses it.
const FAILED: u32 = 255;

/// Runs a session to its end: output, then how it ended, then the end of the channel.
pub(crate) async fn run(line: Line, machine: Arc<dyn Target>, inboxes: Arc<Inboxes>, session: Session) {
    let offers_agent = session.agent;
    let mut agents = JoinSet::new();
    let end = match relay::open(&*machine, Purpose::Session(Box::new(session))).await {
        Ok((_, stream)) => talk(&line, &machine, &inboxes, stream, offers_agent.then_some(&mut agents)).await,
        Err(reason) => Some(End::Failed(reason)),
    };
    // Without an end the client has closed the channel and does not want to know.
    if let Some(end) = end {
        finish(&line, end).await;
    }
    drop(line);
    // A client waits for the end of every channel to its agent: one that was simply dropped would keep it for ever.
    while agents.join_next().await.is_some() {}
}

/// How a session ended.
#[derive(Debug)]
enum End {
    Exited(u32),
    Killed { signal: String, core: bool },
    Failed(String),
}

/// Carries a session; `None` when the client has closed the channel. Connections to the client's agent, if he has offered it,
/// go on beside it.
async fn talk(
    line: &Line,
    machine: &Arc<dyn Target>,
    inboxes: &Arc<Inboxes>,
    (mut reader, mut writer): Opened<LinkStream>,
    mut agents: Option<&mut JoinSet<()>>,
) -> Option<End> {
    let output = async {
        loop {
            let sent = match reader.read().await {
                Ok(Some(Frame::Data(data))) => line.output.data_bytes(data).await,
                Ok(Some(Frame::Stderr(data))) => line.output.extended_data_bytes(1, data).await,
                // The end of the channel says it as well.
                Ok(Some(Frame::Eof)) => Ok(()),
                Ok(Some(Frame::Message(message))) => match Frame::parse(&message) {
                    Ok(FromGuest::Exited { code }) => return Some(End::Exited(code)),
                    Ok(FromGuest::Killed { signal, core }) => {
                        return Some(End::Killed { signal: relay::plain(&signal), core });
                    }
                    Ok(FromGuest::Incoming { id, from }) => {
                        // Who has not offered his agent is not asked for it, whatever the machine says.
                        if let (Some(agents), Endpoint::Agent) = (&mut agents, from) {
                            while agents.try_join_next().is_some() {}
                            if agents.len() < forwards::MAX_AGENTS {
                                let (machine, inboxes) = (machine.clone(), inboxes.clone());
                                agents.spawn(forwards::take(line.handle.clone(), machine, inboxes, id, Origin::Agent));
                            }
                        }
                        Ok(())
                    }
                    Err(error) => return Some(End::Failed(error.to_string())),
                },
                Ok(None) => return Some(End::Failed("the machine has ended the session".into())),
                Err(error) => return Some(End::Failed(error.to_string())),
            };
            if sent.is_err() {
                return None;
            }
        }
    };
    tokio::select! {
        end = output => end,
        fed = relay::feed(&line.inbox, &mut writer, false) => match fed {
            Fed::Closed | Fed::Eof => None,
        },
    }
}

async fn finish(line: &Line, end: End) {
    let (id, handle) = (line.id(), &line.handle);
    let _ = match end {
        End::Exited(code) => handle.exit_status_request(id, code).await,
        End::Killed { signal, core } => {
            handle.exit_signal_request(id, signal_named(signal), core, String::new(), String::new()).await
        }
        End::Failed(reason) => complain(line, id, &reason).await,
    };
    let _ = handle.eof(id).await;
    let _ = handle.close(id).await;
}

/// Tells the person why there is nothing here. A closed window must not keep the channel open.
async fn complain(line: &Line, id: ChannelId, reason: &str) -> Result<(), ()> {
    let words = line.output.extended_data_bytes(1, format!("{reason}\r\n"));
    tokio::select! {
        _ = words => {}
        () = line.inbox.closed() => {}
    }
    line.handle.exit_status_request(id, FAILED).await
}

fn signal_named(name: String) -> Sig {
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

/// SSH's name of a signal.
pub(crate) fn name_of(signal: Sig) -> String {
    match signal {
        Sig::Custom(name) => name,
        // The names of the variants are the names of the signals.
        other => format!("{other:?}"),
    }
}
