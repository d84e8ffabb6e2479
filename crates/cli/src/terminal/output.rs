//! Printing: text for people, the bodies of the engine as JSON for programs, and sanitizing of text from an engine.

use std::io::{ErrorKind, Write as _};

use serde_json::{Value, json};

use crate::failure::{Failure, Result};

/// The maximum length of a printed failure, in characters.
const MAX_FAILURE_CHARS: usize = 2000;

/// Prints a text and a line feed.
pub(crate) fn print_text(text: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{}", text.trim_end_matches('\n')).map_err(output_failure)
}

/// The failure of a write. A closed pipe is not an error: its reader wanted only the beginning.
pub(crate) fn output_failure(error: std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::reader_gone(),
        _ => Failure::with_cause("cannot write the output", error),
    }
}

/// Prints a line on standard error. A failure of that write is ignored, because there is no other place to report it.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", sanitize_line(text));
}

/// Prints a body.
pub(crate) fn print_json(body: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(body).map_err(|e| Failure::with_cause("cannot show the response", e))?;
    // Control characters are escaped, which a JSON parser reads as the same text.
    let escaped =
        |c: char| if is_terminal_control(c) && c != '\n' { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    if text.contains(|c| is_terminal_control(c) && c != '\n') {
        print_text(&text.chars().map(escaped).collect::<String>())
    } else {
        print_text(&text)
    }
}

/// Prints a failure.
pub(crate) fn print_failure(failure: &Failure, is_json: bool) {
    if failure.is_reader_gone() {
        return;
    }
    // A program reads the failure on standard output, like every other body. A person sees one line, also when standard
    // output cannot be written.
    let made = || json!({ "message": failure.to_string() });
    if !is_json || print_json(&failure.body().cloned().unwrap_or_else(made)).is_err() {
        print_note(&format!("tarn: {}", truncate_message(&failure.to_string())));
    }
}

/// Replaces characters that control a terminal or reverse the order of letters: the text may come from any server.
pub(crate) fn sanitize_text(text: &str) -> String {
    text.chars().map(|c| if is_terminal_control(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// Sanitizes a text and joins its lines into one.
pub(crate) fn sanitize_line(text: &str) -> String {
    sanitize_text(text).replace(['\n', '\u{2028}', '\u{2029}'], " ")
}

/// The sanitized message of a body.
pub(crate) fn message_of(body: &Value) -> String {
    sanitize_text(text_field(body, "message"))
}

/// Whether a character controls the terminal instead of being shown.
fn is_terminal_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cuts a text to the maximum length of a failure.
fn truncate_message(text: &str) -> String {
    match text.char_indices().nth(MAX_FAILURE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A text field of a body; empty if it is absent.
pub(crate) fn text_field<'a>(body: &'a Value, name: &str) -> &'a str {
    body.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A text field of a body that must not be empty.
pub(crate) fn required_field<'a>(body: &'a Value, name: &str) -> Result<&'a str> {
    let found = Some(text_field(body, name)).filter(|found| !found.is_empty());
    found.ok_or_else(|| {
        Failure::new(format!(
            "the response of the engine has no {name}; the engine may speak another version of the API"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_text_cannot_control_the_terminal() {
        assert_eq!(sanitize_text("a\x1b[2Jb\nc\u{202e}"), "a\u{fffd}[2Jb\nc\u{fffd}");
        assert_eq!(sanitize_line("a\nStatus DESTROYED"), "a Status DESTROYED");
        assert_eq!(truncate_message(&"ü".repeat(5000)).chars().count(), MAX_FAILURE_CHARS + 1);
    }
}
