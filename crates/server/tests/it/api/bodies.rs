//! Invalid bodies: all errors at once, with the texts that clients know, and no change.

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::harness::{Answer, Call, DatabaseKind, World};

async fn post(world: &World, path: &str, body: &[u8]) -> Answer {
    world.call(Call::new(Method::POST, path).key(&world.admin).raw(body)).await
}

/// The errors as `(where, what, text)`.
fn errors(answer: &Answer) -> Vec<(Value, &str, &str)> {
    assert_eq!(answer.status, 422, "{answer:?}");
    let errors = answer.body["detail"].as_array().unwrap().iter();
    errors
        .map(|error| (error["loc"].clone(), error["type"].as_str().unwrap(), error["msg"].as_str().unwrap()))
        .collect()
}

/// Each invalid field gets its own error.
#[tokio::test(flavor = "multi_thread")]
async fn each_error_names_its_field() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let string = "Input should be a valid string";
    let cases: Vec<(&str, &str, Value, &str, &str)> = vec![
        ("/cluster/create", "{}", json!(["instance_type"]), "missing", "Field required"),
        ("/cluster/create", r#"{"instance_type": 1}"#, json!(["instance_type"]), "string_type", string),
        ("/cluster/create", r#"{"instance_type": null}"#, json!(["instance_type"]), "string_type", string),
        (
            "/cluster/create",
            r#"{"instance_type": ""}"#,
            json!(["instance_type"]),
            "string_too_short",
            "String should have at least 1 character",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": 0}"#,
            json!(["num_nodes"]),
            "greater_than_equal",
            "Input should be greater than or equal to 1",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": -1e300}"#,
            json!(["num_nodes"]),
            "greater_than_equal",
            "Input should be greater than or equal to 1",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": 1e300}"#,
            json!(["num_nodes"]),
            "less_than_equal",
            "Input should be less than or equal to 1000",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": 99999999999999999999}"#,
            json!(["num_nodes"]),
            "less_than_equal",
            "Input should be less than or equal to 1000",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": 1.5}"#,
            json!(["num_nodes"]),
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": "2"}"#,
            json!(["num_nodes"]),
            "int_type",
            "Input should be a valid integer",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "num_nodes": true}"#,
            json!(["num_nodes"]),
            "int_type",
            "Input should be a valid integer",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "save_keys": null}"#,
            json!(["save_keys"]),
            "bool_type",
            "Input should be a valid boolean",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "deletion_protection": 1}"#,
            json!(["deletion_protection"]),
            "bool_type",
            "Input should be a valid boolean",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "public_keys": "k"}"#,
            json!(["public_keys"]),
            "list_type",
            "Input should be a valid list",
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "public_keys": ["k", 7]}"#,
            json!(["public_keys", 1]),
            "string_type",
            string,
        ),
        (
            "/cluster/create",
            r#"{"instance_type": "x", "experimental_container": 7}"#,
            json!(["experimental_container"]),
            "string_type",
            string,
        ),
        (
            "/storage/attach",
            r#"{"storage_id": "s", "cluster_ids": []}"#,
            json!(["cluster_ids"]),
            "too_short",
            "List should have at least 1 item after validation, not 0",
        ),
        (
            "/storage/attach",
            r#"{"storage_id": "s", "cluster_ids": ["a", "b"]}"#,
            json!(["cluster_ids"]),
            "too_long",
            "List should have at most 1 item after validation, not 2",
        ),
        ("/storage/create", r#"{"size_gb": "x"}"#, json!(["size_gb"]), "int_type", "Input should be a valid integer"),
        (
            "/storage/create",
            "[]",
            json!([]),
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
        ),
        (
            "/storage/create",
            "null",
            json!([]),
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
        ),
        ("/storage/create", "", json!([]), "missing", "Field required"),
        ("/storage/create", " \n", json!([]), "missing", "Field required"),
        (
            "/admin/grant",
            r#"{"to": "o-1", "amount": "1"}"#,
            json!(["amount"]),
            "float_type",
            "Input should be a valid number",
        ),
    ];
    for (path, body, place, kind, msg) in cases {
        let mut loc = vec![json!("body")];
        loc.extend(place.as_array().unwrap().iter().cloned());
        assert_eq!(errors(&post(&world, path, body.as_bytes()).await), [(json!(loc), kind, msg)], "{path} {body}");
    }
    assert_eq!(world.get(&world.admin, "/request/list").await.body["requests"], json!([]), "nothing changed");
}

/// All errors of a body are reported at once.
#[tokio::test(flavor = "multi_thread")]
async fn body_errors_are_reported_together() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let body = json!({ "num_nodes": 0, "public_keys": [1, "x", null], "save_keys": "yes", "tp_cluster_name": 5 });
    let refused = post(&world, "/cluster/create", body.to_string().as_bytes()).await;
    insta::assert_json_snapshot!("every_error_at_once", refused.body["detail"]);
    insta::assert_snapshot!("every_error_as_text", refused.message());
    let many = json!({ "instance_type": "x", "public_keys": vec![0; 100_000] });
    let refused = post(&world, "/cluster/create", many.to_string().as_bytes()).await;
    assert_eq!(errors(&refused).len(), 100, "an answer has its limit too");
}

/// A body that is not JSON is refused with its position.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_json_is_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let cases: [(&[u8], i64); 8] = [
        (b"{", 0),
        (b"{\"size\": 1,}", 11),
        (b"size=1", 0),
        (b"\xff", 0),
        (b"{\"size\": 1, \"size\": 2}", 17),
        (b"{\"size\": NaN}", 9),
        (b"{\"size\": 1e999}", 13),
        (&deep, 127),
    ];
    for (body, offset) in cases {
        let refused = post(&world, "/storage/create", body).await;
        let found = errors(&refused);
        assert_eq!((found.len(), &found[0].0, found[0].1), (1, &json!(["body", offset]), "json_invalid"), "{found:?}");
    }
}

/// A body above the limit is refused.
#[tokio::test(flavor = "multi_thread")]
async fn large_body_is_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let body = [br#"{"size": 1}"#.to_vec(), vec![b' '; 1 << 20]].concat();
    assert_eq!(post(&world, "/storage/create", &body).await.refusal(), (413, "body_too_large".to_owned()));
    let body = &body[..1 << 20];
    assert_eq!(post(&world, "/storage/create", body).await.status, 202, "1 MiB is not too large");
}

/// Any content type counts as JSON.
#[tokio::test(flavor = "multi_thread")]
async fn any_content_type_counts_as_json() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", "nonsense"] {
        let call = Call::new(Method::POST, "/storage/create").key(&world.admin).header("content-type", kind.as_bytes());
        assert_eq!(world.call(call.json(&json!({ "size": 1.0, "unknown": {} }))).await.status, 202, "{kind}");
    }
}

/// Invalid names are refused.
#[tokio::test(flavor = "multi_thread")]
async fn invalid_names_are_refused() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    for name in ["", "Upper", "ümlaut", "a b", "a\u{0}b", "a\n", "1a", &"a".repeat(64), "a\u{202e}b", "$(id)"] {
        let cluster = json!({ "instance_type": "1xCPU", "tp_cluster_name": name });
        let volume = json!({ "size": 1, "name": name });
        for (path, body) in [("/cluster/create", cluster), ("/storage/create", volume)] {
            let refused = world.post(&world.admin, path, body).await;
            assert_eq!(refused.refusal(), (400, "invalid_name".to_owned()), "{path} {name:?}");
        }
    }
    for image in ["", "a b", "x\u{0}", "$(id)", &"a".repeat(600)] {
        let refused =
            world.post(&world.admin, "/cluster/create", json!({ "instance_type": "1xCPU", "container": image })).await;
        assert_eq!(refused.refusal(), (400, "invalid_container".to_owned()), "{image:?}");
    }
    assert_eq!(world.get(&world.admin, "/request/list").await.body["requests"], json!([]), "nothing changed");
}

/// The operations of the original API that take a body. They ignore unknown keys and report them.
const REPORTING: [(Method, &str); 9] = [
    (Method::POST, "/health"),
    (Method::POST, "/cluster/create"),
    (Method::PATCH, "/cluster/edit/{cluster}"),
    (Method::POST, "/storage/create"),
    (Method::PATCH, "/storage/edit/{storage_id}"),
    (Method::POST, "/storage/attach"),
    (Method::POST, "/storage/detach"),
    (Method::PATCH, "/user/preferences"),
    (Method::POST, "/user/ssh-key/add"),
];

/// Every operation that takes JSON: those of the original API accept unknown keys, and all others refuse them.
#[tokio::test(flavor = "multi_thread")]
async fn only_operations_of_the_original_accept_unknown_keys() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let document = tarn_server::openapi();
    let mut reporting = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if operation.pointer("/requestBody/content/application~1json").is_none() {
                continue;
            }
            let method: Method = method.to_uppercase().parse().unwrap();
            let ids =
                [("{storage_id}", "s-000000000000"), ("{key_id}", "k-000000000000"), ("{scope}", "o-000000000000")];
            let place = ids.iter().fold(path.clone(), |path, (name, id)| path.replace(name, id));
            let call = Call::new(method.clone(), &place.replace(['{', '}'], "")).key(&world.admin);
            let call = call.header("host", b"localhost:7070");
            let answer = world.call(call.json(&json!({ "zzz": 1 }))).await;
            let refuses = answer.body["detail"].to_string().contains("extra_forbidden");
            let is_original = REPORTING.contains(&(method.clone(), path.as_str()));
            assert_eq!(refuses, !is_original, "{method} {path} {answer:?}");
            let reports = answer.body["warnings"] == json!(["the unknown key \"zzz\" was ignored"]);
            assert_eq!(reports, is_original && path != "/health", "{method} {path} {answer:?}");
            reporting += usize::from(is_original);
        }
    }
    assert_eq!(reporting, REPORTING.len());
    assert_eq!(world.get(&world.admin, "/request/list").await.body["requests"], json!([]), "nothing changed");
}

/// A key with another name than the API's is reported to people and to programs, also when the call is repeated; without
/// unknown keys there is no trace of it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn unknown_keys_are_reported(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let body = json!({ "instance_type": "1xCPU", "name": "mine" });
    let create = || {
        let call = Call::new(Method::POST, "/cluster/create").key(&world.admin).header("idempotency-key", b"once");
        world.call(call.json(&body))
    };
    let made = create().await;
    let warning = "the unknown key \"name\" was ignored; did you mean \"tp_cluster_name\"?";
    assert_eq!((made.status, &made.body["warnings"]), (202, &json!([warning])), "{made:?}");
    assert!(made.message().ends_with(&format!(".\nWarning: {warning}")), "{made:?}");
    assert_eq!(create().await.body, made.body, "a repeated call gets the same");
    let known = json!({ "instance_type": "1xCPU", "tp_cluster_name": "mine" });
    let plain = world.post(&world.admin, "/cluster/create", known).await;
    assert!(plain.status == 202 && plain.body.get("warnings").is_none() && !plain.message().contains("Warning"));

    let typo = json!({ "instance_typ": "1xCPU" });
    let refused = world.post(&world.admin, "/cluster/create", typo).await;
    assert_eq!(errors(&refused).len(), 1, "{refused:?}");
    assert!(refused.message().contains("did you mean \"instance_type\"?"), "{refused:?}");
    let taken = json!({ "instance_type": "1xCPU", "tp_cluster_name": "mine", "nodes": 2 });
    let taken = world.post(&world.admin, "/cluster/create", taken).await;
    assert_eq!((taken.status, taken.body["warnings"].as_array().map(Vec::len)), (409, Some(1)), "{taken:?}");
}

/// Many unknown keys, and long ones, get a short response.
#[tokio::test(flavor = "multi_thread")]
async fn many_unknown_keys_get_a_short_response() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let many = |known: Value| {
        let mut body = known;
        (0..10_000).for_each(|number| body[format!("{}{number}", "k".repeat(80))] = json!({}));
        body.to_string()
    };
    let made = post(&world, "/storage/create", many(json!({ "size": 1 })).as_bytes()).await;
    assert_eq!((made.status, made.body["warnings"].as_array().map(Vec::len)), (202, Some(11)), "{made:?}");
    assert!(made.body.to_string().len() < 5_000 && made.message().contains("9990 other unknown keys"), "{made:?}");
    let refused = post(&world, "/admin/host/drain", many(json!({})).as_bytes()).await;
    assert!(errors(&refused).len() == 20 && refused.body.to_string().len() < 10_000, "{refused:?}");
}
