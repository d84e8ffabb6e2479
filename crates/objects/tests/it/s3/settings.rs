//! Settings of buckets: tags, rules for browsers, and rules for the life of objects.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Call, HOST, Harness, Response, assert_refused};

async fn set(harness: &Harness, what: &str, body: &str) -> Response {
    harness.call("PUT", &format!("/photos?{what}")).body(body).send().await
}

async fn get(harness: &Harness, what: &str) -> Response {
    harness.call("GET", &format!("/photos?{what}")).send().await
}

/// A bucket has tags of its own.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn bucket_tags_are_put_read_and_removed(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(harness) = Harness::new(database).await else { return };
    assert_refused(&get(&harness, "tagging").await, 404, "NoSuchBucket");
    harness.bucket("photos").await;
    assert_refused(&get(&harness, "tagging").await, 404, "NoSuchTagSet");
    let tags = |names: &[&str]| {
        let each = names.iter().map(|name| format!("<Tag><Key>{name}</Key><Value>1</Value></Tag>"));
        format!("<Tagging><TagSet>{}</TagSet></Tagging>", each.collect::<String>())
    };
    for names in [&["a", "b"][..], &["c"]] {
        assert!(set(&harness, "tagging", &tags(names)).await.status < 300);
        assert_eq!(get(&harness, "tagging").await.all("Key"), names);
    }
    let many: Vec<String> = (0..51).map(|number| format!("k{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_refused(&set(&harness, "tagging", &tags(&many)).await, 400, "InvalidTag");
    assert_refused(&set(&harness, "tagging", &tags(&["!"])).await, 400, "InvalidTag");
    assert!(set(&harness, "tagging", &tags(&many[..50])).await.status < 300);
    assert_eq!(harness.call("DELETE", "/photos?tagging").send().await.status, 204);
    assert_refused(&get(&harness, "tagging").await, 404, "NoSuchTagSet");
    set(&harness, "tagging", &tags(&["a"])).await;
    assert_eq!(harness.call("DELETE", "/photos").send().await.status, 204);
    harness.bucket("photos").await;
    assert_refused(&get(&harness, "tagging").await, 404, "NoSuchTagSet");
}

const CORS: &str = "<CORSConfiguration><CORSRule><ID>first</ID><AllowedOrigin>https://*.example.org</AllowedOrigin>\
     <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>\
     <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule>\
     <CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule></CORSConfiguration>";

fn preflight(call: Call, origin: &str, method: &str, headers: &str) -> Call {
    let call = Call { method: "OPTIONS".to_owned(), ..call }.header("origin", origin);
    let call = call.header("access-control-request-method", method);
    if headers.is_empty() { call } else { call.header("access-control-request-headers", headers) }
}

/// Rules for browsers are put, read and removed.
#[tokio::test]
async fn cors_rules_are_put_read_and_removed() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    assert_refused(&get(&harness, "cors").await, 404, "NoSuchCORSConfiguration");
    assert_eq!(set(&harness, "cors", CORS).await.status, 200);
    let rules = get(&harness, "cors").await;
    assert_eq!(rules.all("AllowedMethod"), ["GET", "PUT", "HEAD"]);
    assert_eq!((rules.xml("ID").as_deref(), rules.xml("MaxAgeSeconds").as_deref()), (Some("first"), Some("60")));
    for (from, to) in [("PUT", "PATCH"), ("https://*.", "https://*.*."), ("ETag", "E Tag")] {
        assert_refused(&set(&harness, "cors", &CORS.replace(from, to)).await, 400, "InvalidRequest");
    }
    assert_refused(&set(&harness, "cors", "<CORSConfiguration></CORSConfiguration>").await, 400, "MalformedXML");
    assert_eq!(harness.call("DELETE", "/photos?cors").send().await.status, 204);
    assert_refused(&get(&harness, "cors").await, 404, "NoSuchCORSConfiguration");
}

/// A preflight of a signed URL is allowed by the rules of the bucket that the key in the URL can reach.
#[tokio::test]
async fn preflights_follow_rules() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let url = |method: &str| harness.call(method, "/photos/a").presigned(60);
    let ours = "https://app.example.org";
    assert_refused(&preflight(url("GET"), ours, "GET", "").send_unchanged().await, 403, "AccessForbidden");
    assert_eq!(set(&harness, "cors", CORS).await.status, 200);
    let allowed = preflight(url("PUT"), ours, "PUT", "X-Amz-Date, x-amz-meta-a").send_unchanged().await;
    assert_eq!((allowed.status, allowed.body.len()), (200, 0), "{}", allowed.text());
    for (name, value) in [
        ("access-control-allow-origin", ours),
        ("access-control-allow-methods", "GET, PUT"),
        ("access-control-allow-headers", "X-Amz-Date, x-amz-meta-a"),
        ("access-control-expose-headers", "ETag"),
        ("access-control-max-age", "60"),
    ] {
        assert_eq!(allowed.header(name), Some(value));
    }
    for (origin, method, headers) in [
        ("https://evil.org", "GET", ""),
        (ours, "DELETE", ""),
        (ours, "GET", "range"),
        ("https://example.org", "GET", ""),
    ] {
        let refused = preflight(url("GET"), origin, method, headers).send_unchanged().await;
        assert_refused(&refused, 403, "AccessForbidden");
        assert_eq!(refused.header("access-control-allow-origin"), None);
    }
    let everyone = preflight(url("HEAD"), "https://any.net", "HEAD", "").send_unchanged().await;
    assert_eq!((everyone.status, everyone.header("access-control-allow-origin")), (200, Some("*")));
    let old = harness.call("GET", "/photos/a").presigned_by_old_version(4_000_000_000);
    assert_eq!(preflight(old, ours, "GET", "").send_unchanged().await.status, 200);
    let hosted = harness.call("GET", "/a").header("host", "photos.s3.example.org").presigned(60);
    assert_eq!(preflight(hosted, ours, "GET", "").send_unchanged().await.status, 200);
    let other = harness.other().await;
    let foreign = harness.call("GET", "/photos/a").signed_by(&other).presigned(60);
    assert_refused(&preflight(foreign, ours, "GET", "").send_unchanged().await, 403, "AccessForbidden");
    let long = vec!["x-amz-date"; 101].join(",");
    assert_refused(&preflight(url("GET"), ours, "GET", &long).send_unchanged().await, 400, "BadRequest");
    let vague = Call { method: "OPTIONS".to_owned(), ..harness.call("GET", "/photos/a") }.send_unchanged().await;
    assert_refused(&vague, 400, "BadRequest");
}

/// A preflight without a key gets the same response whatever buckets exist, so it tells nothing about those of others,
/// and the rules of others do not change it. A script reads the response to its call by the rules of the bucket only.
#[tokio::test]
async fn preflights_without_key_tell_nothing() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    let answers = || async {
        let mut seen = Vec::new();
        for (path, host) in [("/photos/a", HOST), ("/absent/a", HOST), ("/", HOST), ("/a", "photos.s3.example.org")] {
            let call = harness.call("GET", path).header("host", host);
            let answer =
                preflight(call, "https://evil.org", "DELETE", "authorization, x-amz-date").send_unchanged().await;
            let names =
                ["origin", "methods", "headers", "credentials"].map(|name| format!("access-control-allow-{name}"));
            let names =
                names.iter().map(String::as_str).chain(["access-control-max-age", "access-control-expose-headers"]);
            let headers: Vec<_> = names.map(|name| answer.header(name).map(str::to_owned)).collect();
            seen.push((answer.status, headers, answer.text()));
        }
        seen
    };
    let before = answers().await;
    assert_eq!(before[0].0, 200, "the call itself will be signed");
    assert!(before.iter().all(|answer| *answer == before[0]), "{before:?}");
    assert_eq!(set(&harness, "cors", CORS).await.status, 200);
    assert_eq!(answers().await, before);
}

/// A script may read the responses that a rule of the bucket allows, errors as well.
#[tokio::test]
async fn responses_follow_rules() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    harness.put("photos", "a", "hello").await;
    set(&harness, "cors", CORS).await;
    let ours = "https://app.example.org";
    for (key, status) in [("a", 200), ("missing", 404)] {
        let call = || harness.call("GET", &format!("/photos/{key}"));
        for got in [
            call().header("origin", ours).send().await,
            call().presigned(60).header("origin", ours).send_unchanged().await,
        ] {
            assert_eq!((got.status, got.header("access-control-allow-origin")), (status, Some(ours)));
            assert_eq!(got.header("access-control-allow-credentials"), Some("true"));
            assert_eq!(got.header("access-control-expose-headers"), Some("ETag"));
            assert!(got.header("vary").unwrap().contains("Origin"));
        }
        for origin in ["https://evil.org", "https://example.org"] {
            let got = call().header("origin", origin).send().await;
            assert_eq!((got.status, got.header("access-control-allow-origin")), (status, None));
        }
        assert_eq!(call().send().await.header("access-control-allow-origin"), None);
    }
    let unsigned = harness.call("GET", "/photos/a").header("origin", ours).send_unchanged().await;
    assert_eq!((unsigned.status, unsigned.header("access-control-allow-origin")), (403, None));
}

/// Rules for the life of objects are put, read as they were given, and removed.
#[tokio::test]
async fn lifecycle_rules_are_put_read_and_removed() {
    let harness = Harness::new(DatabaseKind::Sqlite).await.unwrap();
    harness.bucket("photos").await;
    assert_refused(&get(&harness, "lifecycle").await, 404, "NoSuchLifecycleConfiguration");
    let body = |rules: &str| format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
    let rules = "<Rule><Expiration><Days>3</Days></Expiration><Filter><And><Prefix>log/</Prefix><Tag><Key>k</Key>\
         <Value>v</Value></Tag></And></Filter><ID>one</ID><Status>Enabled</Status></Rule>\
         <Rule><AbortIncompleteMultipartUpload><DaysAfterInitiation>2</DaysAfterInitiation>\
         </AbortIncompleteMultipartUpload><ID>two</ID><NoncurrentVersionExpiration><NewerNoncurrentVersions>4\
         </NewerNoncurrentVersions><NoncurrentDays>5</NoncurrentDays></NoncurrentVersionExpiration>\
         <Prefix>old/</Prefix><Status>Disabled</Status></Rule>\
         <Rule><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>\
         <Filter><Prefix></Prefix></Filter><ID>three</ID><Status>Enabled</Status></Rule>";
    assert_eq!(set(&harness, "lifecycle", &body(rules)).await.status, 200);
    let read = get(&harness, "lifecycle").await.text();
    for rule in rules.split("</Rule>") {
        assert!(read.contains(rule), "{rule} is not in {read}");
    }
    let rule = |text: &str| body(&format!("<Rule><ID>r</ID><Status>Enabled</Status>{text}</Rule>"));
    let days = "<Expiration><Days>1</Days></Expiration>";
    for (text, status, code) in [
        (rule(""), 400, "InvalidRequest"),
        (rule("<Expiration><Days>0</Days></Expiration>"), 400, "InvalidArgument"),
        (rule("<Expiration><Days>-1</Days></Expiration>"), 400, "InvalidArgument"),
        (rule("<Expiration><Date>2030-01-01T05:00:00Z</Date></Expiration>"), 400, "InvalidArgument"),
        (rule(&format!("{days}<Filter><Prefix>a</Prefix></Filter><Prefix>a</Prefix>")), 400, "MalformedXML"),
        (rule(days).replace("Enabled", "On"), 400, "MalformedXML"),
        (
            rule(&format!("{days}<Transition><Days>1</Days><StorageClass>GLACIER</StorageClass></Transition>")),
            501,
            "NotImplemented",
        ),
        (body(""), 400, "MalformedXML"),
    ] {
        assert_refused(&set(&harness, "lifecycle", &text).await, status, code);
    }
    assert_eq!(get(&harness, "lifecycle").await.text(), read, "the rules are as before");
    let date = rule("<Expiration><Date>2030-01-01T00:00:00Z</Date></Expiration>");
    assert_eq!(set(&harness, "lifecycle", &date).await.status, 200);
    assert!(get(&harness, "lifecycle").await.text().contains("<Date>2030-01-01T00:00:00"));
    assert_eq!(harness.call("DELETE", "/photos?lifecycle").send().await.status, 204);
    assert_refused(&get(&harness, "lifecycle").await, 404, "NoSuchLifecycleConfiguration");
}
