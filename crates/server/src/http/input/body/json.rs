//! Strict JSON: a text that two parsers could read differently is refused.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text is not accepted as JSON.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    /// Where it was noticed, in bytes from the start.
    pub(super) offset: usize,
    pub(super) reason: String,
}

/// Parses one JSON value. A duplicate key in an object is an error, and so are more than 128 levels. Whole numbers that
/// are written as `1.0` or `1e3` become integers, because JSON has only one kind of number.
pub(super) fn parse_strict(text: &[u8]) -> Result<Value, Malformed> {
    serde_json::from_slice::<StrictValue>(text).map(|strict| strict.0).map_err(|error| Malformed {
        offset: byte_offset(text, error.line(), error.column()),
        reason: error_reason(&error),
    })
}

/// Converts the line and column of serde_json, both from 1.
fn byte_offset(text: &[u8], line: usize, column: usize) -> usize {
    let before =
        text.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum::<usize>();
    (before + column.saturating_sub(1)).min(text.len())
}

/// Returns the reason without the position, which is a separate field.
fn error_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(StrictValue)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // Below 2^53 every whole number has exactly one float, so nothing is lost.
        let whole = value.fract() == 0.0 && value.abs() < 9_007_199_254_740_992.0;
        let number = if whole { Some(Number::from(value as i64)) } else { Number::from_f64(value) };
        Ok(number.map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(StrictValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("duplicate key {key:?}")));
            }
            let StrictValue(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Valid JSON is parsed.
    #[test]
    fn valid_json_is_parsed() {
        let text = br#" {"a": [1, -2, 0.5, 1.0, 1e3, true, null, "\u00e9"], "b": {"a": {}}} "#;
        let value = json!({"a": [1, -2, 0.5, 1, 1000, true, null, "é"], "b": {"a": {}}});
        assert_eq!(parse_strict(text), Ok(value));
        assert_eq!(parse_strict(b"-0.0"), Ok(json!(0)));
        assert_eq!(parse_strict(b"1e300"), Ok(json!(1e300)));
    }

    /// An error has the position where the text stops being JSON.
    #[test]
    fn json_error_has_position() {
        let deep = "[".repeat(200);
        let cases: [(&[u8], usize, &str); 10] = [
            (b"{", 0, "EOF while parsing an object"),
            (b"{\"a\": 1,}", 8, "trailing comma"),
            (b"{\n\"a\": x}", 7, "expected value"),
            (b"{\"a\": 1} x", 9, "trailing characters"),
            (b"{\"a\": 1, \"a\": 2}", 11, "duplicate key \"a\""),
            (b"{\"b\": {\"a\": 1, \"a\": 2}}", 17, "duplicate key \"a\""),
            (b"NaN", 0, "expected value"),
            (b"\"\xff\"", 1, "invalid unicode code point"),
            (b"1e999", 4, "number out of range"),
            (deep.as_bytes(), 127, "recursion limit exceeded"),
        ];
        for (text, offset, reason) in cases {
            let expected = Malformed { offset, reason: reason.to_owned() };
            assert_eq!(parse_strict(text), Err(expected), "{}", String::from_utf8_lossy(text));
        }
    }
}
