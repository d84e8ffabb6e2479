//! Lists of objects, versions and uploads.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, Response, assert_refused};

const TREE: [&str; 5] = ["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/bla", "cquux/thud"];

async fn tree(database: DatabaseKind) -> Option<Harness> {
    let harness = Harness::new(database).await?;
    harness.bucket("bucket").await;
    for key in TREE {
        harness.put("bucket", key, "x").await;
    }
    Some(harness)
}

async fn list(harness: &Harness, query: &str) -> Response {
    harness.call("GET", &format!("/bucket?{query}")).send().await
}

/// Returns keys and common prefixes.
fn names(response: &Response) -> (Vec<String>, Vec<String>) {
    let prefixes = response.all("CommonPrefixes");
    let inner = |text: &String| text.replace("<Prefix>", "").replace("</Prefix>", "");
    (response.all("Key"), prefixes.iter().map(inner).collect())
}

fn is_truncated(response: &Response) -> bool {
    response.xml("IsTruncated").as_deref() == Some("true")
}

/// The old list continues after a key.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn old_list_continues_after_keys(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(harness) = tree(database).await else { return };
    let all = list(&harness, "").await;
    assert_eq!((names(&all).0, is_truncated(&all)), (TREE.map(str::to_owned).to_vec(), false));
    assert_eq!((all.xml("MaxKeys").unwrap(), all.xml("Name").unwrap()), ("1000".to_owned(), "bucket".to_owned()));
    assert!(all.all("Owner").len() == 5 && all.all("StorageClass").iter().all(|class| class == "STANDARD"));

    let plain = list(&harness, "max-keys=2").await;
    assert_eq!((is_truncated(&plain), plain.xml("NextMarker")), (true, None), "{}", plain.text());
    let first = list(&harness, "delimiter=%2F&max-keys=2").await;
    assert_eq!(names(&first), (vec!["asdf".to_owned()], vec!["boo/".to_owned()]));
    assert_eq!((is_truncated(&first), first.xml("NextMarker").as_deref()), (true, Some("boo/")));
    let second = list(&harness, "delimiter=%2F&max-keys=2&marker=boo%2F").await;
    assert_eq!((names(&second).1, is_truncated(&second)), (vec!["cquux/".to_owned()], false));
    assert_eq!((second.xml("NextMarker"), second.xml("Marker").as_deref()), (None, Some("boo/")));
}

/// The new list continues with a token.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn new_list_continues_with_tokens(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(harness) = tree(database).await else { return };
    let mut seen = Vec::new();
    let mut query = "list-type=2&max-keys=2&start-after=asdf".to_owned();
    loop {
        let page = list(&harness, &query).await;
        assert_eq!(page.xml("KeyCount").unwrap(), names(&page).0.len().to_string());
        assert!(page.all("Owner").is_empty());
        seen.extend(names(&page).0);
        match page.xml("NextContinuationToken") {
            None => break,
            Some(token) => query = format!("list-type=2&max-keys=2&continuation-token={token}"),
        }
    }
    assert_eq!(seen, TREE[1..]);
    let owned = list(&harness, "list-type=2&fetch-owner=true&delimiter=%2F").await;
    assert_eq!((owned.all("Owner").len(), owned.xml("KeyCount").as_deref()), (1, Some("3")));
    // An empty token counts as none, and an invalid one is refused.
    assert_eq!(names(&list(&harness, "list-type=2&continuation-token=").await).0.len(), 5);
    for token in ["garbage%21", "_w", "AA"] {
        let response = list(&harness, &format!("list-type=2&continuation-token={token}")).await;
        assert_refused(&response, 400, "InvalidArgument");
    }
}

/// The limits of lists are numbers within a range.
#[rstest]
#[case::objects("", "max-keys")]
#[case::objects_v2("list-type=2&", "max-keys")]
#[case::versions("versions&", "max-keys")]
#[case::uploads("uploads&", "max-uploads")]
#[tokio::test(flavor = "multi_thread")]
async fn list_limits_are_checked(#[case] form: &str, #[case] name: &str) {
    let Some(harness) = tree(DatabaseKind::Sqlite).await else { return };
    let none = list(&harness, &format!("{form}{name}=0")).await;
    assert_eq!((none.status, none.all("Key").len(), is_truncated(&none)), (200, 0, false));
    let capped = list(&harness, &format!("{form}{name}=5000")).await;
    assert!(capped.text().contains(">1000<"), "{}", capped.text());
    for value in ["-1", "x", "1.5", "99999999999"] {
        assert_refused(&list(&harness, &format!("{form}{name}={value}")).await, 400, "InvalidArgument");
    }
    assert_refused(&list(&harness, &format!("{form}encoding-type=base64")).await, 400, "InvalidArgument");
    assert_refused(&harness.call("GET", &format!("/missing?{form}prefix=a")).send().await, 404, "NoSuchBucket");
}

/// Keys that XML cannot contain are encoded.
#[tokio::test(flavor = "multi_thread")]
async fn unprintable_keys_are_encoded() {
    let Some(harness) = Harness::new(DatabaseKind::Sqlite).await else { return };
    harness.bucket("bucket").await;
    for key in ["a+b c/\u{1}", "a+b d"] {
        harness.put("bucket", key, "").await;
    }
    for form in ["", "list-type=2&", "versions&"] {
        let response = list(&harness, &format!("{form}delimiter=%2F&encoding-type=url&prefix=a%2B")).await;
        assert_eq!(names(&response), (vec!["a%2Bb%20d".to_owned()], vec!["a%2Bb%20c/".to_owned()]), "{form}");
        assert_eq!(response.xml("EncodingType").as_deref(), Some("url"));
        assert_eq!(response.all("Prefix").iter().filter(|prefix| *prefix == "a%2B").count(), 1, "{}", response.text());
    }
}

/// Common prefixes are counted in pages like keys.
#[tokio::test(flavor = "multi_thread")]
async fn common_prefixes_have_pages() {
    let Some(harness) = Harness::new(DatabaseKind::Sqlite).await else { return };
    harness.bucket("bucket").await;
    let mut expected = Vec::new();
    for branch in 0..12 {
        expected.push(format!("{branch:02}/"));
        for leaf in 0..12 {
            harness.put("bucket", &format!("{branch:02}/{leaf}"), "").await;
        }
    }
    for leaf in 0..30 {
        expected.push(format!("a{leaf:02}"));
        harness.put("bucket", &format!("a{leaf:02}"), "").await;
    }
    for size in [1, 5, 12, 41, 42, 1000] {
        let (mut seen, mut query) = (Vec::new(), format!("list-type=2&delimiter=%2F&max-keys={size}"));
        loop {
            let page = list(&harness, &query).await;
            let (keys, prefixes) = names(&page);
            assert!(keys.len() + prefixes.len() <= size);
            seen.extend(prefixes.into_iter().chain(keys));
            match page.xml("NextContinuationToken") {
                None => break,
                Some(token) => query = format!("list-type=2&delimiter=%2F&max-keys={size}&continuation-token={token}"),
            }
        }
        assert_eq!(seen, expected, "pages of {size}");
    }
}

/// A list of versions continues although the last version was deleted.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn version_list_survives_deletion(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(harness) = Harness::new(database).await else { return };
    harness.bucket("bucket").await;
    harness.versioning("bucket", "Enabled").await;
    let mut made = Vec::new();
    for key in ["a", "b"] {
        let mut versions = Vec::new();
        for _ in 0..12 {
            versions.push(harness.put("bucket", key, "x").await.header("x-amz-version-id").unwrap().to_owned());
        }
        made.extend(versions.into_iter().rev());
    }
    let (mut seen, mut query) = (Vec::new(), "versions&max-keys=5".to_owned());
    loop {
        let page = list(&harness, &query).await;
        let versions = page.all("VersionId");
        assert!(!versions.is_empty() && versions.len() <= 5, "{}", page.text());
        seen.extend(versions.clone());
        let (Some(key), Some(marker)) = (page.xml("NextKeyMarker"), page.xml("NextVersionIdMarker")) else { break };
        let gone = format!("/bucket/{key}?versionId={}", versions.last().unwrap());
        assert_eq!(harness.call("DELETE", &gone).send().await.status, 204);
        query = format!("versions&max-keys=5&key-marker={key}&version-id-marker={marker}");
    }
    assert_eq!(seen, made);

    let plain = format!("versions&key-marker=b&version-id-marker={}", made[12]);
    assert_eq!(list(&harness, &plain).await.all("VersionId").first(), made.get(13));
    let grouped = list(&harness, "versions&delimiter=a").await;
    assert_eq!(names(&grouped).1, ["a"]);
    let latest = list(&harness, "versions&prefix=b").await.all("IsLatest");
    assert_eq!(latest.iter().filter(|latest| *latest == "true").count(), 1);
    for bad in ["version-id-marker=x", "key-marker=a&version-id-marker=x", "key-marker=a&version-id-marker=null~x"] {
        assert_refused(&list(&harness, &format!("versions&{bad}")).await, 400, "InvalidArgument");
    }
}

/// Delete markers are listed separately.
#[tokio::test(flavor = "multi_thread")]
async fn delete_markers_are_listed() {
    let Some(harness) = tree(DatabaseKind::Sqlite).await else { return };
    harness.versioning("bucket", "Enabled").await;
    let deleted = harness.call("DELETE", "/bucket/asdf").send().await;
    let page = list(&harness, "versions&prefix=asdf").await;
    let (marker, version) = (page.xml("DeleteMarker").unwrap(), page.xml("Version").unwrap());
    assert!(marker.contains(deleted.header("x-amz-version-id").unwrap()) && marker.contains("<IsLatest>true"));
    assert!(version.contains("<VersionId>null<") && version.contains("<IsLatest>false"), "{version}");
}
