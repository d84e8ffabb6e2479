//! What is printed: for people in words and tables, for programs the engine's own bodies as JSON.

use std::io::{ErrorKind, Write as _};

use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// How many characters of a complaint are shown.
const MAX_COMPLAINT: usize = 2000;

/// Prints a text and the end of its line.
pub(crate) fn print(text: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{}", text.trim_end_matches('\n')).map_err(unwritten)
}

/// Why something could not be written. Whoever reads only the beginning has what he wants, and that ends it.
pub(crate) fn unwritten(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::enough(),
        _ => Failure::doing("the output cannot be written", error),
    }
}

/// Says something beside the output. Where nobody can be told, nothing more can be done about it.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", line(text));
}

/// Prints a body.
pub(crate) fn print_json(body: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(body).map_err(|e| Failure::doing("the answer cannot be shown", e))?;
    // JSON has another way to write what a terminal would obey, and programs read the same.
    let escaped = |c: char| if is_command(c) && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    match text.contains(|c| is_command(c) && c != '\n') {
        true => print(&text.chars().map(escaped).collect::<String>()),
        false => print(&text),
    }
}

/// Says why something did not work.
pub(crate) fn complain(failure: &Failure, is_json: bool) {
    if failure.is_enough() {
        return;
    }
    // For programs on standard output, where they read everything else; a person sees one line, and so does who has a program
    // that cannot read.
    let made = || json!({ "message": failure.to_string() });
    if !is_json || print_json(&failure.body().cloned().unwrap_or_else(made)).is_err() {
        tell(&format!("tarn: {}", shortened(&failure.to_string())));
    }
}

/// A text in which nothing commands a terminal, or turns the order of letters around: it may come from anybody.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_command(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// The same in one line, which cannot pass for two.
pub(crate) fn line(text: &str) -> String {
    plain(text).replace(['\n', '\u{2028}', '\u{2029}'], " ")
}

/// What the engine says to somebody.
pub(crate) fn message(body: &Value) -> String {
    plain(text(body, "message"))
}

/// Whether a terminal would not show a character but obey it.
fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// As much of a text as somebody reads.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_COMPLAINT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text of a body; empty where there is none.
pub(crate) fn text<'a>(body: &'a Value, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A text of a body without which it cannot go on.
pub(crate) fn required<'a>(body: &'a Value, name: &str) -> Result<&'a str> {
    let found = Some(text(body, name)).filter(|found| !found.is_empty());
    found.ok_or_else(|| Failure::new(format!("the engine answers without {name}; it may speak another API")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_command_the_terminal() {
        assert_eq!(plain("a\x1b[2Jb\nc\u{202e}"), "a\u{fffd}[2Jb\nc\u{fffd}");
        assert_eq!(line("a\nStatus DESTROYED"), "a Status DESTROYED");
        assert_eq!(shortened(&"ü".repeat(5000)).chars().count(), MAX_COMPLAINT + 1);
    }
}
