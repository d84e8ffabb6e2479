//! Parsing of responses: a body, a refusal with the engine's own message, or something that is not from an engine.

use http::StatusCode;
use serde_json::Value;

use crate::failure::{self, Failure, Result};
use crate::terminal::output::text_field;

/// The maximum length of an excerpt of an unexpected response.
const MAX_SHOWN: usize = 120;

/// The body of a response, or the failure that it means.
pub(crate) fn parse_response(address: &str, status: StatusCode, text: &[u8]) -> Result<Value> {
    if status == StatusCode::NO_CONTENT {
        return Ok(serde_json::json!({}));
    }
    match (status.is_success(), parse_object(text)) {
        (true, Some(body)) => Ok(body),
        (false, Some(body)) => Err(engine_refusal(address, status, body)),
        (_, None) => Err(unexpected_response(address, status, text)),
    }
}

/// The failure for a response that is not from an engine, such as the page of a proxy.
pub(crate) fn unexpected_response(address: &str, status: StatusCode, text: &[u8]) -> Failure {
    let shown = excerpt(text);
    let message =
        format!("{address} responds with status {status} and {shown}, which is not from an engine; check the address");
    if failure::is_temporary(status) { Failure::temporary(message) } else { Failure::new(message) }
}

/// The failure for a refusal by the server that keeps the files. It is not the engine, so the exit code is the general
/// one.
pub(crate) fn storage_refusal(host: &str, status: StatusCode, text: &[u8]) -> Failure {
    let said = parse_object(text).map(|body| error_text(&body)).filter(|said| !said.is_empty());
    let said = said.unwrap_or_else(|| excerpt(text));
    Failure::new(format!("{host}, which stores the files, responds with status {status}: {said}"))
}

fn engine_refusal(address: &str, status: StatusCode, body: Value) -> Failure {
    let said = error_text(&body);
    let message = match status {
        StatusCode::UNAUTHORIZED => {
            format!("{address} does not accept this API key; save another key with `tarn login`")
        }
        _ if said.is_empty() => format!("{address} refuses the call with status {status}"),
        _ => said,
    };
    Failure::refused(status, message, body)
}

fn parse_object(text: &[u8]) -> Option<Value> {
    serde_json::from_slice::<Value>(text).ok().filter(Value::is_object)
}

/// The reason in an error body, in whichever field it is.
fn error_text(body: &Value) -> String {
    let said = ["message", "detail", "error", "external_message"].iter().map(|name| text_field(body, name));
    if let Some(said) = said.into_iter().find(|said| !said.is_empty()) {
        return said.to_owned();
    }
    // A list of validation errors.
    let wrong = body["detail"].as_array().into_iter().flatten().filter(|each| !text_field(each, "msg").is_empty());
    wrong
        .map(|each| format!("{}: {}", field_path(&each["loc"]), text_field(each, "msg")))
        .collect::<Vec<_>>()
        .join("; ")
}

/// The path of a field, without the leading `body`.
fn field_path(place: &Value) -> String {
    let parts = place.as_array().into_iter().flatten().filter(|part| *part != "body");
    let names = parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned));
    names.collect::<Vec<_>>().join(".")
}

/// The first words of a response.
fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = tarn_base::plain(&words, MAX_SHOWN);
    if shown.is_empty() { "nothing".to_owned() } else { format!("{shown:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_text_is_found_in_every_field() {
        assert_eq!(error_text(&json!({ "message": "no", "detail": "other" })), "no");
        assert_eq!(error_text(&json!({ "message": "", "error": "no" })), "no");
        let detail =
            json!({ "detail": [{ "loc": ["body", "keys", 0], "msg": "is none" }, 7, { "loc": null, "msg": "x" }] });
        assert_eq!(error_text(&detail), "keys.0: is none; : x");
        assert_eq!(error_text(&json!({ "detail": 7 })), "");
    }
}
