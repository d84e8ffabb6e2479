//! Replaces ids, times and addresses in responses, so that they can be compared with snapshots.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// Replaces ids by numbered ones and times by one time, of the same length, so that tables stay aligned.
pub(crate) fn redact(value: &Value) -> Value {
    fn walk(value: &Value, known: &mut HashMap<String, String>) -> Value {
        match value {
            Value::String(text) => json!(redact_text(&redact_addresses(text), known)),
            Value::Array(items) => items.iter().map(|item| walk(item, known)).collect(),
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), walk(value, known))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
    walk(value, &mut HashMap::new())
}

/// Addresses follow from ids and differ in length, so the columns they stand in are narrowed.
fn redact_addresses(text: &str) -> String {
    let is_address = |word: &str| word.rsplit('@').next().is_some_and(|word| word.parse::<Ipv4Addr>().is_ok());
    if !text.split_whitespace().any(is_address) {
        return text.to_owned();
    }
    let word = |word: &str| match (is_address(word), word.bytes().all(|b| b == b'-') && word.len() > 3) {
        (true, _) => word.rsplit_once('@').map_or("10.0.0.1".to_owned(), |(user, _)| format!("{user}@10.0.0.1")),
        (false, true) => "---".to_owned(),
        (false, false) => word.to_owned(),
    };
    let line = |line: &str| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn redact_text(text: &str, known: &mut HashMap<String, String>) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == ':';
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out.push_str(&redact_word(word, known));
        let separator = after.chars().next();
        out.extend(separator);
        rest = &after[separator.map_or(0, char::len_utf8)..];
    }
    out
}

fn redact_word(word: &str, known: &mut HashMap<String, String>) -> String {
    let is_id = word.len() >= 14 && word.as_bytes()[1] == b'-' && b"acijkorsu".contains(&word.as_bytes()[0]);
    let core = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase());
    if is_id && core(&word[2..14]) && (word.len() == 14 || word.as_bytes()[14] == b'-') {
        let next = known.len() + 1;
        let number = known.entry(word[..14].to_owned()).or_insert_with(|| format!("{}{next:012}", &word[..2]));
        return format!("{number}{}", &word[14..]);
    }
    if word.len() == 20 && word.ends_with('Z') && word.as_bytes()[10] == b'T' {
        "2026-01-01T00:00:00Z".to_owned()
    } else {
        word.to_owned()
    }
}
