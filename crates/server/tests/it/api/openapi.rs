//! The document against the founding documents, and against itself.

use std::collections::HashSet;

use rstest::rstest;
use serde_json::{Value, json};

use crate::support::harness::{DatabaseKind, World};

/// Everything in `seed` must be in `ours` and be equal; ours may say more.
fn compare(path: &str, seed: &Value, ours: &Value, differences: &mut Vec<String>) {
    match (seed, ours) {
        (Value::Object(seed), Value::Object(ours)) => {
            for (key, value) in seed {
                match ours.get(key) {
                    Some(found) => compare(&format!("{path}/{key}"), value, found, differences),
                    None => differences.push(format!("{path}/{key} is missing")),
                }
            }
        }
        (Value::Array(seed), Value::Array(ours)) if seed.len() == ours.len() => {
            for (at, (value, found)) in seed.iter().zip(ours).enumerate() {
                compare(&format!("{path}/{at}"), value, found, differences);
            }
        }
        (seed, ours) if seed == ours => {}
        (seed, ours) => differences.push(format!("{path}: {seed} became {ours}")),
    }
}

fn seed(name: &str) -> Value {
    let path = format!("{}/tests/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (_, yaml) = text.split_once("````yaml").unwrap();
    let (_, yaml) = yaml.split_once('\n').unwrap();
    let (yaml, _) = yaml.split_once("````").unwrap();
    yaml_serde::from_str(yaml).unwrap()
}

/// The document contains the seed operations unchanged.
#[rstest]
#[case("000_1c1e4a3d8f5c24fe.txt")]
#[case("001_9a3465c584ce3665.txt")]
#[case("002_17af40ac914b90e6.txt")]
fn document_contains_seed_operations(#[case] name: &str) {
    let (mut seed, mut ours) = (seed(name), tarn_server::openapi());
    let (said, say) = (seed["info"]["description"].take(), ours["info"]["description"].take());
    assert!(say.as_str().unwrap().starts_with(said.as_str().unwrap()), "{say:#} does not begin with {said:#}");
    let mut differences = Vec::new();
    compare("", &seed, &ours, &mut differences);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The seed operations add only status codes that exist.
#[rstest]
#[case("000_1c1e4a3d8f5c24fe.txt")]
#[case("001_9a3465c584ce3665.txt")]
#[case("002_17af40ac914b90e6.txt")]
fn seed_operations_add_only_real_codes(#[case] name: &str) {
    let (seed, ours) = (seed(name), tarn_server::openapi());
    for (path, methods) in seed["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let mut mine = ours["paths"][path][method].clone();
            for code in ["401", "413", "429", "503"] {
                mine["responses"].as_object_mut().unwrap().remove(code);
            }
            assert_eq!(&mine, operation, "{method} {path}");
        }
    }
}

/// Every operation id is unique, and every reference resolves.
#[test]
fn operation_ids_are_unique_and_references_resolve() {
    let document = tarn_server::openapi();
    let mut names = HashSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "{name} twice");
            assert!(operation["summary"].is_string() && operation["description"].is_string(), "{method} {path}");
            assert!(operation["responses"]["500"].is_object(), "{method} {path}");
        }
    }
    assert_eq!(names.len(), 78, "{names:?}");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
    }
}

/// Ids have a pattern that real ids match, and responses say which operations take them. The seed operations have neither.
#[tokio::test(flavor = "multi_thread")]
async fn ids_have_patterns_and_links() {
    let document = tarn_server::openapi();
    let path = |path: &str| document.pointer(path).unwrap_or_else(|| panic!("there is no {path}")).clone();
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let made = json!({ "instance_type": "1xCPU" });
    let made = world.post(&world.admin, "/cluster/create", made).await;
    let response = "/components/schemas/ClusterCreateRestResponse/properties";
    for (field, found) in [
        ("cluster_id", path(&format!("{response}/cluster_id/pattern"))),
        ("request_id", path(&format!("{response}/request_id/anyOf/0/pattern"))),
    ] {
        let pattern = jsonschema::validator_for(&json!({ "pattern": found })).unwrap();
        assert!(pattern.is_valid(&made.body[field]), "{field}: {} does not match {found}", made.body[field]);
        assert!(!pattern.is_valid(&json!("x-7k2m9q4x0abc")) && !pattern.is_valid(&json!("c-iiiiiiiiiiii")), "{found}");
    }
    assert!(path("/paths/~1job~1info~1{job_id}/get/parameters/0/schema/pattern").as_str().unwrap().starts_with("^j-"));
    let links = path("/paths/~1cluster~1create/post/responses/202/links");
    let expected = json!({ "operationId": "cluster_info", "parameters": { "cluster": "$response.body#/cluster_id" } });
    assert_eq!(links["cluster_info"], expected);
    assert!(links["request_info"].is_object());
    assert!(!document["paths"]["/storage/attach"].to_string().contains("links"));
}

/// Fields have titles, and nothing of utoipa's style is left.
#[test]
fn document_has_fastapi_style() {
    let document = tarn_server::openapi();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert_eq!(schema["title"].as_str(), Some(name.as_str()));
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let refers = property.to_string().contains("$ref") && property["items"].is_null();
            assert!(refers || property["title"].is_string(), "{name}.{field}: {property}");
        }
    }
    let text = document.to_string();
    for left in ["\"oneOf\"", "\"type\":[", "\"format\":\"int", "\"format\":\"double"] {
        assert!(!text.contains(left), "{left}");
    }
}

/// The document is served without a key.
#[tokio::test(flavor = "multi_thread")]
async fn openapi_needs_no_key() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let call = crate::support::harness::Call::new(axum::http::Method::GET, "/openapi.json");
    let answer = world.call(call).await;
    assert_eq!((answer.status, answer.body), (200, tarn_server::openapi()));
}
