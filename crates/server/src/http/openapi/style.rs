//! Converts a document to the style of FastAPI: titles everywhere, `anyOf` with null, the same errors for all
//! operations.

use serde_json::{Map, Value, json};

/// The keys that annotate a value and not its type; they stay outside when the type moves into an `anyOf`.
const ANNOTATIONS: [&str; 6] = ["title", "description", "default", "deprecated", "examples", "example"];

/// Rewrites the whole document. The error responses of the operations in `seeds` get no schema.
pub(super) fn apply_fastapi_style(document: &mut Value, seeds: &[&str]) {
    document["servers"] = json!([]);
    document["security"] = json!([]);
    for (name, schema) in object_entries(document.pointer_mut("/components/schemas")) {
        rewrite_schema(schema);
        schema["title"] = json!(name);
    }
    for (path, operations) in object_entries(document.get_mut("paths")) {
        for (method, operation) in object_entries(Some(operations)) {
            add_defaults(operation, path);
            rewrite_operation(operation, method, seeds);
        }
    }
}

/// An operation needs a key and has the first segment of its path as its tag, unless its handler says otherwise.
fn add_defaults(operation: &mut Value, path: &str) {
    // utoipa expresses that no scheme is needed as `[{}]`.
    let needs_key = operation.get("security").is_none();
    operation["security"] = if needs_key { json!([{ "HTTPBearer": [] }]) } else { json!([]) };
    if operation.get("tags").is_none() {
        operation["tags"] = json!([path.split('/').nth(1)]);
    }
}

fn rewrite_operation(operation: &mut Value, method: &str, seeds: &[&str]) {
    reflow_description(operation);
    for parameter in array_items(operation.get_mut("parameters")) {
        reflow_description(parameter);
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        if let Some(schema) = parameter.get_mut("schema") {
            rewrite_schema(schema);
            add_title(schema, &name);
        }
    }
    let is_seed = operation["operationId"].as_str().is_some_and(|id| seeds.contains(&id));
    let common = common_errors(operation, method);
    let responses = operation["responses"].as_object_mut().expect("every operation has responses");
    for (status, description) in common {
        responses.entry(status).or_insert_with(|| json!({ "description": description }));
    }
    for (status, response) in responses {
        for (_, header) in object_entries(response.get_mut("headers")) {
            header.get_mut("schema").into_iter().for_each(rewrite_schema);
        }
        let schema = match (status.as_str(), is_seed) {
            ("422", _) => "HTTPValidationError",
            (code, false) if code.starts_with(['4', '5']) => "ErrorBody",
            _ => continue,
        };
        let reference = format!("#/components/schemas/{schema}");
        response["content"] = json!({ "application/json": { "schema": { "$ref": reference } } });
    }
}

/// Returns the errors that an operation may return by its kind, unless it declares them itself.
fn common_errors(operation: &Value, method: &str) -> Vec<(&'static str, &'static str)> {
    let mut refusals = vec![("500", "Internal server error"), ("503", "Temporarily unavailable, see Retry-After")];
    if operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty()) {
        refusals.push(("401", "Missing or wrong API key"));
        refusals.push(("429", "Too many calls with this API key, see Retry-After"));
    }
    match operation["tags"][0].as_str() {
        Some("admin") => refusals.push(("403", "Only administrators of the engine may do this")),
        Some("object-storage") => refusals.push(("403", "The caller is in no organization")),
        _ => {}
    }
    if method != "get" && operation["tags"][0] != "system" {
        refusals.push(("409", "Idempotency-Key used for another call"));
    }
    if operation.get("requestBody").is_some() {
        refusals.push(("400", "Invalid request"));
        refusals.push(("413", "Body larger than 1 MiB"));
        refusals.push(("422", "Validation Error"));
    }
    if operation["parameters"].as_array().is_some_and(|list| list.iter().any(|one| one["in"] == "query")) {
        refusals.push(("422", "Validation Error"));
    }
    refusals
}

/// Rewrites a schema and everything in it.
fn rewrite_schema(schema: &mut Value) {
    reflow_description(schema);
    if schema["type"] == "integer" || schema["type"] == "number" || schema["type"].is_array() {
        remove_key(schema, "format");
    }
    rename_key(schema, "oneOf", "anyOf");
    array_items(schema.get_mut("anyOf")).for_each(rewrite_schema);
    if let Some(alternatives) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        // utoipa puts null first, FastAPI last.
        alternatives.sort_by_key(|alternative| alternative["type"] == "null");
    }
    for (name, property) in object_entries(schema.get_mut("properties")) {
        rewrite_schema(property);
        add_title(property, name);
    }
    schema.get_mut("items").into_iter().for_each(rewrite_schema);
    schema.get_mut("additionalProperties").into_iter().for_each(rewrite_schema);
    // Keys of objects are always strings; FastAPI does not state it.
    remove_key(schema, "propertyNames");
    split_nullable(schema);
}

/// `type: [X, null]` becomes `anyOf: [X, null]`.
fn split_nullable(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    let Some([kind, null]) = object.get("type").and_then(Value::as_array).map(Vec::as_slice) else {
        return;
    };
    assert_eq!(null, "null", "utoipa puts null last");
    let mut inner = Map::from_iter([("type".to_owned(), kind.clone())]);
    object.remove("type");
    let limits: Vec<String> = object.keys().filter(|key| !ANNOTATIONS.contains(&key.as_str())).cloned().collect();
    for key in limits {
        if let Some(value) = object.remove(&key) {
            inner.insert(key, value);
        }
    }
    object.insert("anyOf".to_owned(), json!([inner, { "type": "null" }]));
}

/// Adds a title from the name of a field, unless the field is a reference to a schema with a title.
fn add_title(schema: &mut Value, name: &str) {
    let refers = |value: &Value| value.get("$ref").is_some();
    let alternatives = schema["anyOf"].as_array();
    let only_refers = refers(schema) || alternatives.is_some_and(|list| list.iter().any(refers));
    if !only_refers && schema.get("title").is_none() {
        let words = name.split('_').map(|word| {
            let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
            first.to_uppercase() + rest
        });
        schema["title"] = json!(words.collect::<Vec<_>>().join(" "));
    }
}

/// Puts a description on one line, and removes an empty one.
fn reflow_description(value: &mut Value) {
    let Some(text) = value["description"].as_str() else {
        return;
    };
    match text.split_whitespace().collect::<Vec<_>>().join(" ") {
        empty if empty.is_empty() => remove_key(value, "description"),
        text => value["description"] = json!(text),
    }
}

pub(super) fn object_entries(value: Option<&mut Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    value.and_then(Value::as_object_mut).into_iter().flatten()
}

pub(super) fn array_items(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}

fn remove_key(value: &mut Value, key: &str) {
    if let Some(object) = value.as_object_mut() {
        object.remove(key);
    }
}

fn rename_key(value: &mut Value, from: &str, to: &str) {
    if let Some(object) = value.as_object_mut()
        && let Some(moved) = object.remove(from)
    {
        object.insert(to.to_owned(), moved);
    }
}
