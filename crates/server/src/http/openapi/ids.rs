//! Adds to the document which form ids have, and which operations take an id that a response has. The seed operations
//! and their schemas stay as they are.

use std::collections::HashSet;

use serde_json::{Value, json};
use tarn_model::ids::{ApiKeyId, ClusterId, InstanceId, JobId, OrgId, RequestId, SshKeyId, UserId, VolumeId};

use super::style::{array_items, object_entries};

/// The fields and parameters that hold ids of one kind, with the prefix of the kind.
const ID_NAMES: [(&str, &str); 14] = [
    ("cluster_id", ClusterId::PREFIX),
    ("cluster_ids", ClusterId::PREFIX),
    ("instance_id", InstanceId::PREFIX),
    ("instance_ids", InstanceId::PREFIX),
    ("job_id", JobId::PREFIX),
    ("org_id", OrgId::PREFIX),
    ("request_ids", RequestId::PREFIX),
    ("storage_id", VolumeId::PREFIX),
    ("uid", UserId::PREFIX),
    ("user_id", UserId::PREFIX),
    ("ClusterInfo.id", ClusterId::PREFIX),
    ("InstanceInfo.id", InstanceId::PREFIX),
    ("JobInfo.id", JobId::PREFIX),
    ("StorageInfo.id", VolumeId::PREFIX),
];

/// Fields whose kind depends on the schema or on the operation.
const IDS_IN_PLACES: [(&str, &str); 9] = [
    ("SSHKeyInfo.id", SshKeyId::PREFIX),
    ("SSHKeyCreateResponse.key_id", SshKeyId::PREFIX),
    ("AdminKeyInfo.key_id", ApiKeyId::PREFIX),
    ("AdminKeyCreateResponse.key_id", ApiKeyId::PREFIX),
    ("user_ssh_key_remove.key_id", SshKeyId::PREFIX),
    ("user_ssh_key_challenge.key_id", SshKeyId::PREFIX),
    ("user_ssh_key_prove.key_id", SshKeyId::PREFIX),
    ("admin_key_revoke.key_id", ApiKeyId::PREFIX),
    ("request_info.request_id", RequestId::PREFIX),
];

/// Fields of responses, each with the operation that shows what they name, and its parameter.
const LINKED: [(&str, &str, &str); 4] = [
    ("request_id", "request_info", "request_id"),
    ("cluster_id", "cluster_info", "cluster"),
    ("storage_id", "storage_info", "storage_id"),
    ("job_id", "job_info", "job_id"),
];

/// Adds `pattern` to ids in responses and paths, and `links` to responses. Bodies of calls get no patterns: they are
/// checked against these schemas, and a malformed id has an error of its own.
pub(super) fn describe_ids(document: &mut Value, seeds: &[&str]) {
    let exact = exact_schemas(document, seeds);
    for (name, schema) in object_entries(document.pointer_mut("/components/schemas")) {
        if exact.contains(name) || name.ends_with("Request") {
            continue;
        }
        for (field, property) in object_entries(schema.get_mut("properties")) {
            // The ids of calls in error bodies are no ids of requests.
            let is_request = field == "request_id" && name.ends_with("Response");
            let prefix = if is_request { Some(RequestId::PREFIX) } else { prefix_of(name, field) };
            prefix.into_iter().for_each(|prefix| add_pattern(property, prefix));
        }
    }
    let schemas = document.pointer("/components/schemas").cloned().unwrap_or_default();
    for (_, operations) in object_entries(document.get_mut("paths")) {
        for (_, operation) in object_entries(Some(operations)) {
            let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
            if seeds.contains(&id.as_str()) {
                continue;
            }
            for parameter in array_items(operation.get_mut("parameters")).filter(|one| one["in"] == "path") {
                if let Some(prefix) = prefix_of(&id, parameter["name"].as_str().unwrap_or_default()) {
                    add_pattern(&mut parameter["schema"], prefix);
                }
            }
            for (status, response) in object_entries(operation.get_mut("responses")) {
                if status.starts_with('2') {
                    add_links(response, &id, &schemas);
                }
            }
        }
    }
}

/// The schemas of the bodies and of the successes of the seed operations.
fn exact_schemas(document: &Value, seeds: &[&str]) -> HashSet<String> {
    let paths = document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
    let operations = paths.filter_map(Value::as_object).flat_map(|path| path.values());
    let seeds = operations.filter(|one| one["operationId"].as_str().is_some_and(|id| seeds.contains(&id)));
    let contents = seeds.flat_map(|one| {
        let responses = one["responses"].as_object().into_iter().flat_map(|all| all.values());
        responses.chain(one.get("requestBody"))
    });
    contents.filter_map(schema_name).map(str::to_owned).collect()
}

/// The name of the schema of a body or of a response.
fn schema_name(part: &Value) -> Option<&str> {
    part.pointer("/content/application~1json/schema/$ref")?.as_str()?.rsplit('/').next()
}

/// The prefix of the ids in a field of a schema, or in a parameter of an operation.
fn prefix_of(place: &str, name: &str) -> Option<&'static str> {
    let in_place = format!("{place}.{name}");
    let all = || IDS_IN_PLACES.iter().chain(&ID_NAMES);
    all().find(|(known, _)| *known == in_place).or_else(|| all().find(|(known, _)| *known == name)).map(|found| found.1)
}

/// Adds the pattern to a text, to the text of a nullable one, and to the items of a list.
fn add_pattern(schema: &mut Value, prefix: &str) {
    if schema["type"] == "string" {
        schema["pattern"] = json!(format!("^{prefix}[0-9a-hjkmnp-tv-z]{{12}}$"));
    }
    array_items(schema.get_mut("anyOf")).for_each(|one| add_pattern(one, prefix));
    schema.get_mut("items").into_iter().for_each(|items| add_pattern(items, prefix));
}

/// Adds a link for each id in a response to the operation that shows the object, unless it is that operation.
fn add_links(response: &mut Value, operation: &str, schemas: &Value) {
    let Some(properties) = schema_name(response).and_then(|name| schemas[name]["properties"].as_object()) else {
        return;
    };
    for (field, target, parameter) in LINKED {
        if properties.contains_key(field) && target != operation {
            response["links"][target] = json!({
                "operationId": target,
                "parameters": { parameter: format!("$response.body#/{field}") },
            });
        }
    }
}
