//! The document against the founding documents, and against itself.

use std::collections::HashSet;

use rstest::rstest;
use serde_json::Value;

use crate::harness::{DatabaseKind, World};

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

#[rstest]
#[case("000_1c1e4a3d8f5c24fe.txt")]
#[case("001_9a3465c584ce3665.txt")]
#[case("002_17af40ac914b90e6.txt")]
fn the_founding_documents_stand_in_ours(#[case] name: &str) {
    let (mut seed, mut ours) = (seed(name), tarn_server::openapi());
    let (said, say) = (seed["info"]["description"].take(), ours["info"]["description"].take());
    assert!(say.as_str().unwrap().starts_with(said.as_str().unwrap()), "{say:#} does not begin with {said:#}");
    let mut differences = Vec::new();
    compare("", &seed, &ours, &mut differences);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[rstest]
#[case("000_1c1e4a3d8f5c24fe.txt")]
#[case("001_9a3465c584ce3665.txt")]
#[case("002_17af40ac914b90e6.txt")]
fn founding_operations_say_nothing_else_but_true_codes(#[case] name: &str) {
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

#[test]
fn every_operation_has_a_name_of_its_own_and_every_reference_leads_somewhere() {
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
    assert_eq!(names.len(), 72, "{names:?}");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(document.pointer(reference).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn fields_have_titles_and_nothing_is_left_of_the_other_style() {
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

#[tokio::test(flavor = "multi_thread")]
async fn it_is_served_without_a_key() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let call = crate::harness::Call::new(axum::http::Method::GET, "/openapi.json");
    let answer = world.call(call).await;
    assert_eq!((answer.status, answer.body), (200, tarn_server::openapi()));
}
