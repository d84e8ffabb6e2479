//! Keys of a body that its schema does not have. The operations of the original API ignore them, as the original does,
//! and report them, because a misspelled key changes what a call does: its field keeps its default. Our own operations
//! refuse them by their schema.

use serde_json::{Map, Value};
use tarn_base::plain;

/// How many keys are named; a longer list would not be read.
const MAX_NAMED: usize = 10;

/// How much of a key is shown.
const MAX_SHOWN: usize = 60;

/// How many edits apart two keys may be of which one is proposed for the other.
const MAX_EDITS: usize = 2;

/// Returns a sentence for each key of a body that its schema does not have, nested objects included; at most
/// [`MAX_NAMED`] and one that counts the others. References lead into `document`.
pub(super) fn describe_unknown_keys(document: &Value, schema: &Value, body: &Value) -> Vec<String> {
    let mut search = Search { document, sentences: Vec::new(), others: 0 };
    search.visit(schema, body, &mut Vec::new());
    if search.others > 0 {
        search.sentences.push(format!("{} other unknown keys were ignored", search.others));
    }
    search.sentences
}

struct Search<'a> {
    document: &'a Value,
    sentences: Vec<String>,
    /// The number of keys that are not named.
    others: usize,
}

impl<'a> Search<'a> {
    fn visit(&mut self, schema: &'a Value, value: &Value, place: &mut Vec<String>) {
        let mut schemas = Vec::new();
        self.collect_alternatives(schema, &mut schemas);
        match value {
            Value::Object(object) => self.visit_object(&schemas, object, place),
            Value::Array(items) => {
                let Some(of_items) = schemas.iter().find_map(|schema| schema.get("items")) else { return };
                for (at, item) in items.iter().enumerate().filter(|(_, item)| item.is_object() || item.is_array()) {
                    place.push(at.to_string());
                    self.visit(of_items, item, place);
                    place.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn visit_object(&mut self, schemas: &[&'a Value], object: &Map<String, Value>, place: &mut Vec<String>) {
        let known: Vec<&'a Map<String, Value>> =
            schemas.iter().filter_map(|schema| schema.get("properties")?.as_object()).collect();
        // A map takes any key. Where no object is expected, the value is the error, and not its keys.
        if known.is_empty() || schemas.iter().any(|schema| schema.get("additionalProperties").is_some()) {
            return;
        }
        for (key, value) in object {
            match known.iter().find_map(|properties| properties.get(key)) {
                Some(schema) => {
                    place.push(key.clone());
                    self.visit(schema, value, place);
                    place.pop();
                }
                None if self.sentences.len() == MAX_NAMED => self.others += 1,
                None => {
                    let near = nearest_key(key, known.iter().flat_map(|properties| properties.keys()));
                    self.sentences.push(sentence(place, key, near));
                }
            }
        }
    }

    /// Collects the schemas of which a value matches one or all, with references resolved.
    fn collect_alternatives(&self, schema: &'a Value, found: &mut Vec<&'a Value>) {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer));
            target.into_iter().for_each(|target| self.collect_alternatives(target, found));
            return;
        }
        found.push(schema);
        for word in ["anyOf", "oneOf", "allOf"] {
            let inner = schema.get(word).and_then(Value::as_array);
            inner.into_iter().flatten().for_each(|inner| self.collect_alternatives(inner, found));
        }
    }
}

fn sentence(place: &[String], key: &str, near: Option<&String>) -> String {
    let within = if place.is_empty() { String::new() } else { format!(" in {}", place.join(".")) };
    let proposal = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
    format!("the unknown key \"{}\"{within} was ignored{proposal}", plain(key, MAX_SHOWN))
}

/// Returns the known key that was probably meant: one of which the given one is a part, or the reverse, or one that is
/// spelled almost alike.
fn nearest_key<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    if key.len() > MAX_SHOWN {
        return None;
    }
    let key = key.to_lowercase().replace('-', "_");
    let is_part = |whole: &str, part: &str| part.len() > 2 && whole.contains(part);
    let rated = known.filter_map(|name| match edits_between(&key, name) {
        edits if edits <= MAX_EDITS && edits < key.len() => Some((edits, name)),
        _ if is_part(name, &key) || is_part(&key, name) => Some((MAX_EDITS + 1, name)),
        _ => None,
    });
    rated.min_by_key(|(rating, _)| *rating).map(|(_, name)| name)
}

/// The least number of characters to insert, remove or replace that turns one text into the other.
fn edits_between(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Value {
        json!({ "components": { "schemas": {
            "Outer": { "type": "object", "properties": {
                "tp_cluster_name": { "type": "string" },
                "num_nodes": { "type": "integer" },
                "inner": { "anyOf": [{ "$ref": "#/components/schemas/Inner" }, { "type": "null" }] },
                "list": { "type": "array", "items": { "$ref": "#/components/schemas/Inner" } },
                "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            } },
            "Inner": { "type": "object", "properties": { "size": { "type": "integer" } } },
        } } })
    }

    fn described(body: &Value) -> Vec<String> {
        describe_unknown_keys(&document(), &json!({ "$ref": "#/components/schemas/Outer" }), body)
    }

    #[test]
    fn unknown_keys_are_named_with_what_was_meant() {
        assert_eq!(described(&json!({ "tp_cluster_name": "a", "inner": null, "labels": { "any": "x" } })), [""; 0]);
        assert_eq!(
            described(&json!({ "name": "a", "Num-Node": 1, "zzz": 2 })),
            [
                "the unknown key \"Num-Node\" was ignored; did you mean \"num_nodes\"?",
                "the unknown key \"name\" was ignored; did you mean \"tp_cluster_name\"?",
                "the unknown key \"zzz\" was ignored",
            ]
        );
    }

    #[test]
    fn nested_objects_are_searched() {
        assert_eq!(
            described(&json!({ "inner": { "siez": 1 }, "list": [{}, { "size": 1, "b": { "c": 1 } }] })),
            [
                "the unknown key \"siez\" in inner was ignored; did you mean \"size\"?",
                "the unknown key \"b\" in list.1 was ignored",
            ]
        );
        assert_eq!(described(&json!([{ "a": 1 }])), [""; 0], "the body is the error");
        assert_eq!(described(&json!({ "num_nodes": { "a": 1 } })), [""; 0], "the value is the error");
    }

    #[test]
    fn sentences_are_few_short_and_printable() {
        let many: Map<String, Value> = (0..10_000).map(|number| (format!("key-{number}"), json!(1))).collect();
        let found = described(&Value::Object(many));
        assert_eq!((found.len(), found[10].as_str()), (11, "9990 other unknown keys were ignored"));
        let found = described(&json!({ "\u{1b}[31m\u{202e}": 1, "x".repeat(10_000): 1 }));
        assert_eq!(found[0], "the unknown key \"\u{fffd}[31m\u{fffd}\" was ignored");
        assert!(found[1].len() < 200 && found[1].contains("xxx…\""), "{}", found[1]);
    }
}
