//! From the program to the stream: its output, connections to the agent, and how it ended.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::WaitStatus;
use tarn_link::frames::MAX_DATA;
use tarn_link::{Endpoint, FromGuest, Result, Writer};
use tokio::io::AsyncWrite;

use super::agent::Agent;
use super::input;
use crate::link_service::Guest;
use crate::process::ChildExit;
use crate::process::Pipe;

/// How long the output must be silent, after the program has ended, to count as complete. Usually it ends by itself
/// when no process holds it any more. But background processes may hold it forever, and a client should not wait for
/// those. On a terminal a person waits; without one, the last output of a slow background process may matter.
const SILENCE: Duration = Duration::from_secs(2);
const SILENCE_ON_TERMINAL: Duration = Duration::from_millis(200);

/// The output of a program.
pub(super) struct Output {
    pub(super) output: Arc<Pipe>,
    pub(super) errors: Option<Pipe>,
    pub(super) ending: ChildExit,
    pub(super) agent: Option<Agent>,
}

impl Output {
    /// Relays output until the program has ended and all of its output was sent, then sends its exit status.
    pub(super) async fn relay_output<W: AsyncWrite + Unpin>(
        mut self,
        guest: &Arc<Guest>,
        writer: &mut Writer<W>,
    ) -> Result<()> {
        let (mut output_is_open, mut errors_are_open, mut ended) = (true, self.errors.is_some(), None);
        let silence = if errors_are_open { SILENCE } else { SILENCE_ON_TERMINAL };
        let (mut buffer, mut error_buffer) = (vec![0; MAX_DATA], vec![0; if errors_are_open { MAX_DATA } else { 0 }]);
        while output_is_open || errors_are_open || ended.is_none() {
            tokio::select! {
                biased;
                status = &mut self.ending, if ended.is_none() => {
                    // The guest keeps every sender until the child is reaped, so there is always a status.
                    ended = Some(status.ok());
                }
                length = self.output.read(&mut buffer), if output_is_open => match length? {
                    0 => output_is_open = false,
                    length => writer.data(&buffer[..length]).await?,
                },
                length = read_errors(self.errors.as_ref(), &mut error_buffer), if errors_are_open => match length? {
                    0 => errors_are_open = false,
                    length => writer.stderr(&error_buffer[..length]).await?,
                },
                stream = accept_agent_connection(self.agent.as_ref()) => {
                    let agent = self.agent.as_ref();
                    let offered = agent.and_then(|agent| agent.offer_connection(&guest.pending_connections, stream));
                    if let Some(id) = offered {
                        writer.message(&FromGuest::Incoming { id, from: Endpoint::Agent }).await?;
                    }
                }
                () = tokio::time::sleep(silence), if ended.is_some() => break,
            }
        }
        writer.eof().await?;
        writer.message(&exit_message(ended.flatten())).await
    }
}

async fn read_errors(errors: Option<&Pipe>, buffer: &mut [u8]) -> std::io::Result<usize> {
    match errors {
        Some(errors) => errors.read(buffer).await,
        None => std::future::pending().await,
    }
}

async fn accept_agent_connection(agent: Option<&Agent>) -> tokio::net::UnixStream {
    match agent {
        Some(agent) => agent.accept().await,
        None => std::future::pending().await,
    }
}

fn exit_message(status: Option<WaitStatus>) -> FromGuest {
    let Some(status) = status else { return FromGuest::Exited { code: 255 } };
    match status.terminating_signal() {
        // The kernel sets this bit in the status when the process dumped core.
        Some(number) => FromGuest::Killed { signal: input::signal_name(number), core: status.as_raw() & 0x80 != 0 },
        None => {
            FromGuest::Exited { code: status.exit_status().and_then(|code| u32::try_from(code).ok()).unwrap_or(255) }
        }
    }
}
