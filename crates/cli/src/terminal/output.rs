//! Printing: text for people, the bodies of the engine as JSON for programs, and sanitizing of text from an engine.

use std::io::{ErrorKind, Write as _};

use serde_json::{Value, json};
use tarn_base::{is_unsafe, plain};

use crate::failure::{Failure, Result};

/// The maximum lengths of a printed failure and of any other line.
const MAX_FAILURE_CHARS: usize = 2000;
const MAX_LINE_CHARS: usize = 10_000;

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
    // Unsafe characters are escaped, which a JSON parser reads as the same text.
    let escape = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    let escaped = |c: char| if is_unsafe(c) && c != '\n' { escape(c) } else { c.to_string() };
    if text.contains(|c| is_unsafe(c) && c != '\n') {
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
        print_note(&format!("tarn: {}", plain(&failure.to_string(), MAX_FAILURE_CHARS)));
    }
}

/// Sanitizes a text, which may come from any server, and joins its lines into one.
pub(crate) fn sanitize_line(text: &str) -> String {
    plain(text, MAX_LINE_CHARS).into_owned()
}

/// The sanitized lines of the message of a body.
pub(crate) fn message_of(body: &Value) -> String {
    text_field(body, "message").split('\n').map(sanitize_line).collect::<Vec<_>>().join("\n")
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
        assert_eq!(message_of(&json!({ "message": "a\x1b[2Jb\nc\u{202e}" })), "a\u{fffd}[2Jb\nc\u{fffd}");
        assert_eq!(sanitize_line("a\nStatus DESTROYED"), "a Status DESTROYED");
    }
}
