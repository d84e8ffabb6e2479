//! Questions to the user. Without a terminal, commands that need an answer are refused.

use std::io::{BufRead as _, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::terminal::interrupts::Interrupts;

/// The maximum length of a line that is read.
const MAX_LINE: u64 = 64 << 10;

/// Asks for confirmation. `--no-input` means yes, as with the stock client.
pub(crate) async fn confirm(ctx: &Context<'_>, question: &str) -> Result<()> {
    if ctx.options.no_input {
        return Ok(());
    }
    if !ctx.may_ask() {
        return Err(Failure::usage(format!("{question} Cannot ask without a terminal; give --no-input to confirm")));
    }
    match ask_line(&ctx.interrupts, format!("{question} [y/N] ")).await?.to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was done")),
    }
}

/// Asks for a line without echo. The terminal is restored afterwards, also after Ctrl-C.
pub(crate) async fn read_secret(interrupts: &Interrupts, question: String) -> Result<String> {
    let hidden = EchoGuard::disable_echo();
    let answer = ask_line(interrupts, question).await;
    drop(hidden);
    // The line feed was not echoed either.
    let _ = writeln!(std::io::stderr());
    answer
}

/// Asks a question and reads a line.
async fn ask_line(interrupts: &Interrupts, question: String) -> Result<String> {
    read_in_thread(interrupts, move || ask_blocking(&question)).await
}

/// Reads the next line of standard input.
pub(crate) async fn read_stdin_line(interrupts: &Interrupts) -> Result<String> {
    read_in_thread(interrupts, read_line).await
}

/// Reads in a thread, so that Ctrl-C ends the wait.
async fn read_in_thread(
    interrupts: &Interrupts,
    read: impl FnOnce() -> Result<String> + Send + 'static,
) -> Result<String> {
    tokio::select! {
        biased;
        () = interrupts.pressed() => Err(Failure::interrupted("nothing was done")),
        answer = tokio::task::spawn_blocking(read) => {
            answer.map_err(|e| Failure::with_cause("cannot ask", e)).flatten()
        }
    }
}

fn ask_blocking(question: &str) -> Result<String> {
    // The lock is released before the read.
    let asked = write!(std::io::stderr(), "{question}").and_then(|()| std::io::stderr().flush());
    asked.map_err(|e| Failure::with_cause("cannot ask", e))?;
    read_line()
}

fn read_line() -> Result<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().take(MAX_LINE).read_line(&mut line);
    read.map_err(|e| Failure::with_cause("cannot read standard input", e))?;
    Ok(line.trim().to_owned())
}

/// Disables the echo of the terminal until it is dropped.
struct EchoGuard(Option<Termios>);

impl EchoGuard {
    fn disable_echo() -> EchoGuard {
        let Ok(before) = tcgetattr(rustix::stdio::stdin()) else { return EchoGuard(None) };
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        let changed = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &hidden).is_ok();
        EchoGuard(changed.then_some(before))
    }
}

impl Drop for EchoGuard {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
