//! Questions to the person at the terminal. Where there is nobody to ask, what needs an answer is refused.

use std::io::{BufRead as _, Read as _, Write as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;

/// The longest line that is read.
const MAX_LINE: u64 = 64 << 10;

/// Asks whether something shall be done. `--no-input` is a yes, as with the stock client.
pub(crate) async fn confirm(ctx: &Context<'_>, question: &str) -> Result<()> {
    if ctx.options.no_input {
        return Ok(());
    }
    if !ctx.may_ask() {
        return Err(Failure::usage(format!("{question} Nobody can be asked here; give --no-input to do it")));
    }
    match asked(&ctx.interrupts, format!("{question} [y/N] ")).await?.to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was done")),
    }
}

/// Asks for a line that is not shown while it is typed. The terminal is as it was afterwards, also after Ctrl-C.
pub(crate) async fn secret(interrupts: &Interrupts, question: String) -> Result<String> {
    let hidden = Hidden::begin();
    let answer = asked(interrupts, question).await;
    drop(hidden);
    // The end of the line was not shown either.
    let _ = writeln!(std::io::stderr());
    answer
}

/// Asks for a line.
async fn asked(interrupts: &Interrupts, question: String) -> Result<String> {
    in_a_thread(interrupts, move || ask(&question)).await
}

/// The next line of standard input.
pub(crate) async fn line(interrupts: &Interrupts) -> Result<String> {
    in_a_thread(interrupts, read_line).await
}

/// Waits in a thread of its own: nobody has to answer.
async fn in_a_thread(
    interrupts: &Interrupts,
    read: impl FnOnce() -> Result<String> + Send + 'static,
) -> Result<String> {
    tokio::select! {
        biased;
        () = interrupts.pressed() => Err(Failure::interrupted("nothing was done")),
        answer = tokio::task::spawn_blocking(read) => {
            answer.map_err(|e| Failure::doing("nothing could be asked", e)).flatten()
        }
    }
}

fn ask(question: &str) -> Result<String> {
    // The lock is given back before it is waited for an answer.
    let asked = write!(std::io::stderr(), "{question}").and_then(|()| std::io::stderr().flush());
    asked.map_err(|e| Failure::doing("nothing could be asked", e))?;
    read_line()
}

fn read_line() -> Result<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().take(MAX_LINE).read_line(&mut line);
    read.map_err(|e| Failure::doing("standard input cannot be read", e))?;
    Ok(line.trim().to_owned())
}

/// A terminal that does not show what is typed; as it was when this is dropped.
struct Hidden(Option<Termios>);

impl Hidden {
    fn begin() -> Hidden {
        let Ok(before) = tcgetattr(rustix::stdio::stdin()) else { return Hidden(None) };
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        let changed = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &hidden).is_ok();
        Hidden(changed.then_some(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, before);
        }
    }
}
