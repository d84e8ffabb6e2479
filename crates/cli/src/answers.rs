//! What an answer means: a body, a refusal in the engine's own words, or something that no engine says.

use http::StatusCode;
use serde_json::Value;

use crate::failure::{self, Failure, Result};
use crate::output::text;

/// How much of an answer that nobody understands is shown.
const MAX_SHOWN: usize = 120;

/// The body of an answer, or why there is none.
pub(crate) fn understand(address: &str, status: StatusCode, text: &[u8]) -> Result<Value> {
    if status == StatusCode::NO_CONTENT {
        return Ok(serde_json::json!({}));
    }
    match (status.is_success(), object(text)) {
        (true, Some(body)) => Ok(body),
        (false, Some(body)) => Err(refused(address, status, body)),
        (_, None) => Err(strange(address, status, text)),
    }
}

/// Something else answers: a proxy, or a web page.
pub(crate) fn strange(address: &str, status: StatusCode, text: &[u8]) -> Failure {
    let shown = beginning(text);
    let message = format!(
        "{address} answers with status {status} and {shown}, which is not what an engine says; is the address right?"
    );
    if failure::is_passing(status) { Failure::passing(message) } else { Failure::new(message) }
}

/// Whoever keeps the files refuses them. He is not the engine, and so it has no code of its own.
pub(crate) fn withheld(host: &str, status: StatusCode, text: &[u8]) -> Failure {
    let said = object(text).map(|body| words(&body)).filter(|said| !said.is_empty());
    let said = said.unwrap_or_else(|| beginning(text));
    Failure::new(format!("{host}, where the files are, answers with status {status}: {said}"))
}

fn refused(address: &str, status: StatusCode, body: Value) -> Failure {
    let said = words(&body);
    let message = match status {
        StatusCode::UNAUTHORIZED => format!("{address} does not know this API key; give another with `tarn login`"),
        _ if said.is_empty() => format!("{address} refuses it with status {status}"),
        _ => said,
    };
    Failure::refused(status, message, body)
}

fn object(text: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(text).ok().filter(Value::is_object)
}

/// What a body says about why, wherever it says it.
fn words(body: &Value) -> String {
    let said = ["message", "detail", "error", "external_message"].iter().map(|name| text(body, name));
    if let Some(said) = said.into_iter().find(|said| !said.is_empty()) {
        return said.to_owned();
    }
    // A list of everything that is wrong with what was sent.
    let wrong = body["detail"].as_array().into_iter().flatten().filter(|each| !text(each, "msg").is_empty());
    wrong.map(|each| format!("{}: {}", place(&each["loc"]), text(each, "msg"))).collect::<Vec<_>>().join("; ")
}

/// Where something is wrong, without the word that says that it is in the body.
fn place(place: &Value) -> String {
    let parts = place.as_array().into_iter().flatten().filter(|part| *part != "body");
    let names = parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
    names.collect::<Vec<_>>().join(".")
}

/// The beginning of something, to be recognized by.
fn beginning(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let shown: String = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_SHOWN).collect();
    if shown.is_empty() { "nothing".to_owned() } else { format!("{shown:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_found_where_engines_put_them() {
        assert_eq!(words(&json!({ "message": "no", "detail": "other" })), "no");
        assert_eq!(words(&json!({ "message": "", "error": "no" })), "no");
        let detail =
            json!({ "detail": [{ "loc": ["body", "keys", 0], "msg": "is none" }, 7, { "loc": null, "msg": "x" }] });
        assert_eq!(words(&detail), "keys.0: is none; : x");
        assert_eq!(words(&json!({ "detail": 7 })), "");
    }
}
