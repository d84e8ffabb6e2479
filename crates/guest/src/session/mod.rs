//! Sessions: a program of the user whose input and output are a link stream.
//!
//! Start reading at [`serve_session`]. [`program`] starts the program, [`environment`] builds its environment
//! variables, [`terminal`] opens its terminal, [`input`] and [`output`] relay the data, [`agent`] offers it the
//! client's authentication agent, and [`command_line`] parses a command for an image without a shell. It must not know
//! whether the stream comes from the engine or from the SSH server inside the instance.

mod agent;
mod command_line;
pub(crate) mod environment;
mod input;
mod output;
mod program;
mod terminal;

use std::sync::Arc;

use rustix::process::Signal;
use tarn_link::{Reader, Reply, Result, Session, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};

use crate::link_service::Guest;
use agent::Agent;

/// Runs a session on a stream until the program or the stream ends.
pub(crate) async fn serve_session<S: Stream>(
    guest: &Arc<Guest>,
    session: Session,
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let (running, agent) = match start_session(guest, &session) {
        Ok(started) => started,
        Err(e) => {
            return writer.message(&Reply::Refused { reason: format!("the program could not be started: {e}") }).await;
        }
    };
    let _count = guest.count_session();
    writer.message(&Reply::Ready).await?;
    if let Some(greeting) = &running.greeting {
        writer.data(greeting).await?;
    }
    let (pid, terminal) = (running.pid, running.terminal.clone());
    let input = input::Input::new(pid, running.input, terminal);
    let output = output::Output { output: running.output, errors: running.errors, ending: running.ending, agent };
    // The input ends only with the stream. Then the program gets HUP, and loses its input and output.
    let result = tokio::select! {
        biased;
        result = output.relay_output(guest, &mut writer) => result,
        result = input.relay_input(reader) => {
            let _ = rustix::process::kill_process_group(pid, Signal::HUP);
            result
        }
    };
    if result.is_err() {
        let _ = rustix::process::kill_process_group(pid, Signal::HUP);
    }
    result
}

fn start_session(guest: &Guest, session: &Session) -> std::io::Result<(program::Running, Option<Agent>)> {
    let account = guest.account()?;
    let agent = session.agent.then(|| Agent::open(&account)).transpose()?;
    let running = program::start_program(guest, &account, session, agent.as_ref().map(Agent::path))?;
    Ok((running, agent))
}
