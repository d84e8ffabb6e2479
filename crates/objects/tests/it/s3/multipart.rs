//! Multipart uploads.

use rstest::rstest;
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Harness, Response, assert_refused};

const MIN_PART: usize = 5 << 20;

async fn bucket(database: DatabaseKind) -> Option<Harness> {
    let harness = Harness::new(database).await?;
    harness.bucket("bucket").await;
    Some(harness)
}

async fn begin(harness: &Harness, headers: &[(&str, &str)]) -> String {
    let call = harness.call("POST", "/bucket/key?uploads");
    let response = headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send().await;
    assert_eq!(response.status, 200, "{}", response.text());
    response.xml("UploadId").unwrap()
}

async fn part(harness: &Harness, upload: &str, number: u32, body: impl Into<Vec<u8>>) -> Response {
    let target = format!("/bucket/key?partNumber={number}&uploadId={upload}");
    harness.call("PUT", &target).body(body).send().await
}

/// Renders the parts of a completion: number, ETag and additional elements.
fn named(parts: &[(u32, &str, &str)]) -> String {
    let parts = parts
        .iter()
        .map(|(number, etag, more)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{more}</Part>"));
    format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<String>())
}

async fn complete(harness: &Harness, upload: &str, body: String, headers: &[(&str, &str)]) -> Response {
    let call = harness.call("POST", &format!("/bucket/key?uploadId={upload}")).body(body);
    headers.iter().fold(call, |call, (name, value)| call.header(name, value)).send().await
}

/// The parts of an upload become an object.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn multipart_upload_becomes_object(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(harness) = bucket(database).await else { return };
    let upload =
        begin(&harness, &[("x-amz-meta-a", "1"), ("x-amz-tagging", "t=1"), ("content-type", "text/plain")]).await;
    let big = vec![7; MIN_PART];
    let tail = part(&harness, &upload, 700, "tail").await.header("etag").unwrap().to_owned();
    let head = part(&harness, &upload, 3, big.clone()).await.header("etag").unwrap().to_owned();
    part(&harness, &upload, 9, "left out").await;
    assert_refused(&harness.get("bucket", "key").await, 404, "NoSuchKey");

    let list = [(3, head.trim_matches('"'), ""), (700, &tail, "")];
    let done = complete(&harness, &upload, named(&list), &[]).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let seen = harness.get("bucket", "key").await;
    assert_eq!((seen.body.len(), &seen.body[MIN_PART..]), (MIN_PART + 4, b"tail".as_slice()));
    let etag = seen.header("etag").unwrap();
    assert!(etag.ends_with("-2\"") && done.text().contains(etag.trim_matches('"')), "{etag}");
    assert_eq!((seen.header("x-amz-meta-a"), seen.header("content-type")), (Some("1"), Some("text/plain")));
    // The client may have lost the response.
    let again = complete(&harness, &upload, named(&list), &[]).await;
    assert_eq!((again.status, again.xml("ETag")), (200, done.xml("ETag")));
    harness.put("bucket", "key", "newer").await;
    assert_refused(&complete(&harness, &upload, named(&list), &[]).await, 404, "NoSuchUpload");
}

/// A refused completion leaves the upload unchanged.
#[tokio::test(flavor = "multi_thread")]
async fn refused_completion_keeps_upload() {
    let Some(harness) = bucket(DatabaseKind::Sqlite).await else { return };
    let upload = begin(&harness, &[]).await;
    let one = part(&harness, &upload, 1, "one").await.header("etag").unwrap().to_owned();
    let two = part(&harness, &upload, 2, "two").await.header("etag").unwrap().to_owned();
    for (list, code) in [
        (named(&[]), "MalformedXML"),
        ("<CompleteMultipartUpload><Part><ETag>x</ETag></Part></CompleteMultipartUpload>".to_owned(), "MalformedXML"),
        ("<Other/>".to_owned(), "MalformedXML"),
        (named(&[(2, &two, ""), (1, &one, "")]), "InvalidPartOrder"),
        (named(&[(1, &one, ""), (1, &one, "")]), "InvalidPartOrder"),
        (named(&[(1, &one, ""), (2, &two, "")]), "EntityTooSmall"),
        (named(&[(1, &two, "")]), "InvalidPart"),
        (named(&[(3, &one, "")]), "InvalidPart"),
        (named(&[(0, &one, "")]), "InvalidArgument"),
    ] {
        assert_refused(&complete(&harness, &upload, list, &[]).await, 400, code);
    }
    let list = || named(&[(1, &one, "")]);
    let with = |headers: &'static [(&str, &str)]| complete(&harness, &upload, list(), headers);
    assert_refused(&with(&[("x-amz-mp-object-size", "4")]).await, 400, "InvalidRequest");
    assert_refused(&with(&[("x-amz-checksum-crc32", "AAAAAA==")]).await, 400, "InvalidRequest");
    assert_refused(&with(&[("if-match", "\"0123\"")]).await, 404, "NoSuchKey");
    harness.put("bucket", "key", "there").await;
    assert_refused(&with(&[("if-none-match", "*")]).await, 412, "PreconditionFailed");
    assert_eq!(harness.get("bucket", "key").await.text(), "there");
    assert_eq!(with(&[("x-amz-mp-object-size", "3")]).await.status, 200);
    assert_eq!(harness.get("bucket", "key").await.text(), "one");
}

/// Unknown parts and uploads are refused.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_parts_and_uploads_are_refused() {
    let Some(harness) = bucket(DatabaseKind::Sqlite).await else { return };
    let upload = begin(&harness, &[]).await;
    for number in ["0", "10001", "-1", "x", ""] {
        let target = format!("/bucket/key?partNumber={number}&uploadId={upload}");
        assert_refused(&harness.call("PUT", &target).body("x").send().await, 400, "InvalidArgument");
    }
    for target in ["/bucket/key?uploadId=nonsense", "/bucket/other?uploadId=UPLOAD"] {
        let target = target.replace("UPLOAD", &upload);
        assert_refused(&harness.call("GET", &target).send().await, 404, "NoSuchUpload");
        assert_refused(&harness.call("DELETE", &target).send().await, 404, "NoSuchUpload");
        assert_refused(
            &harness.call("PUT", &format!("{target}&partNumber=1")).body("x").send().await,
            404,
            "NoSuchUpload",
        );
    }
    let bad = harness.call("PUT", &format!("/bucket/key?partNumber=1&uploadId={upload}")).body("x");
    assert_refused(&bad.header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==").send().await, 400, "BadDigest");
    assert_eq!(harness.call("DELETE", &format!("/bucket/key?uploadId={upload}")).send().await.status, 204);
    assert_refused(&part(&harness, &upload, 1, "late").await, 404, "NoSuchUpload");
    assert_refused(&complete(&harness, &upload, named(&[(1, "x", "")]), &[]).await, 404, "NoSuchUpload");
}

/// Parts and uploads are listed in pages.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn parts_and_uploads_are_listed(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(harness) = bucket(database).await else { return };
    let upload = begin(&harness, &[]).await;
    for number in 1..=5 {
        part(&harness, &upload, number, format!("{number}")).await;
    }
    let list = |query: &str| harness.call("GET", &format!("/bucket/key?uploadId={upload}{query}")).send();
    let first = list("&max-parts=2").await;
    assert_eq!(first.all("PartNumber"), ["1", "2"]);
    assert_eq!(
        (first.xml("IsTruncated").unwrap(), first.xml("NextPartNumberMarker").unwrap()),
        ("true".into(), "2".into())
    );
    let rest = list("&part-number-marker=2").await;
    assert_eq!((rest.all("PartNumber").len(), rest.xml("IsTruncated").as_deref()), (3, Some("false")));
    assert_refused(&list("&max-parts=-1").await, 400, "InvalidArgument");

    let mut made = vec![upload.clone(), begin(&harness, &[]).await, begin(&harness, &[]).await];
    harness.call("POST", "/bucket/z/1?uploads").send().await;
    harness.call("POST", "/bucket/z/2?uploads").send().await;
    let (mut seen, mut query) = (Vec::new(), "uploads&max-uploads=1&delimiter=%2F".to_owned());
    loop {
        let page = harness.call("GET", &format!("/bucket?{query}")).send().await;
        seen.extend(page.all("UploadId"));
        assert_eq!(page.all("Upload").len() + page.all("CommonPrefixes").len(), 1, "{}", page.text());
        let Some(key) = page.xml("NextKeyMarker").map(|key| key.replace('/', "%2F")) else { break };
        let marker = page.xml("NextUploadIdMarker").map(|id| format!("&upload-id-marker={id}")).unwrap_or_default();
        query = format!("uploads&max-uploads=1&delimiter=%2F&key-marker={key}{marker}");
    }
    seen.sort();
    made.sort();
    assert_eq!(seen, made);
}

/// The checksums of the parts are combined to that of the object.
#[tokio::test(flavor = "multi_thread")]
async fn part_checksums_combine() {
    let Some(harness) = bucket(DatabaseKind::Sqlite).await else { return };
    // The CRC32 of "123456789", of the whole object and of the sums of one part.
    for (kind, whole) in [("FULL_OBJECT", "y/Q5Jg=="), ("COMPOSITE", "")] {
        let upload = begin(&harness, &[("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", kind)]).await;
        let target = format!("/bucket/key?partNumber=1&uploadId={upload}");
        let send = || harness.call("PUT", &target).body("123456789");
        assert_refused(&send().header("x-amz-checksum-crc32", "AAAAAA==").send().await, 400, "BadDigest");
        assert_refused(&send().header("x-amz-checksum-crc32", "AAAA").send().await, 400, "InvalidRequest");
        assert_refused(&send().header("x-amz-checksum-crc32c", "4waSgw==").send().await, 400, "InvalidRequest");
        let sent = send().send().await;
        assert_eq!(sent.header("x-amz-checksum-crc32"), Some("y/Q5Jg=="), "also without a request");
        let etag = sent.header("etag").unwrap();
        let listed = harness.call("GET", &format!("/bucket/key?uploadId={upload}")).send().await;
        assert_eq!(listed.xml("ChecksumCRC32").as_deref(), Some("y/Q5Jg=="));
        assert_eq!(
            (listed.xml("ChecksumAlgorithm").as_deref(), listed.xml("ChecksumType").as_deref()),
            (Some("CRC32"), Some(kind))
        );

        let right = named(&[(1, etag, "<ChecksumCRC32>y/Q5Jg==</ChecksumCRC32>")]);
        let wrong = named(&[(1, etag, "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>")]);
        assert_refused(&complete(&harness, &upload, wrong, &[]).await, 400, "InvalidPart");
        if kind == "COMPOSITE" {
            assert_refused(&complete(&harness, &upload, named(&[(1, etag, "")]), &[]).await, 400, "InvalidRequest");
        }
        let whole_wrong = complete(&harness, &upload, right.clone(), &[("x-amz-checksum-crc32", "AAAAAA==")]).await;
        assert_refused(&whole_wrong, 400, "BadDigest");
        let done = complete(&harness, &upload, right, &[]).await;
        assert_eq!((done.status, done.xml("ChecksumType").as_deref()), (200, Some(kind)), "{}", done.text());
        let sum = done.xml("ChecksumCRC32").unwrap();
        assert!(if kind == "COMPOSITE" { sum.ends_with("-1") } else { sum == whole }, "{sum}");

        let wanted = "Checksum,ObjectParts,ObjectSize,ETag,StorageClass";
        let attributes =
            harness.call("GET", "/bucket/key?attributes").header("x-amz-object-attributes", wanted).send().await;
        let etag = done.xml("ETag").unwrap();
        assert_eq!(attributes.xml("ETag").unwrap(), etag.trim_matches('"'), "it has no quotes here");
        assert_eq!(attributes.all("ChecksumCRC32"), [sum, "y/Q5Jg==".to_owned()], "{}", attributes.text());
        assert_eq!(
            (attributes.xml("ObjectSize").unwrap(), attributes.xml("PartsCount").unwrap()),
            ("9".into(), "1".into())
        );
    }
    for headers in [
        [("x-amz-checksum-algorithm", "SHA256"), ("x-amz-checksum-type", "FULL_OBJECT")],
        [("x-amz-checksum-algorithm", "MD4"), ("x-amz-checksum-type", "COMPOSITE")],
    ] {
        let call = harness.call("POST", "/bucket/key?uploads");
        let call = headers.iter().fold(call, |call, (name, value)| call.header(name, value));
        assert_refused(&call.send().await, 400, "InvalidRequest");
    }
}

/// A part has its own checksum, and the type of that of the object.
#[tokio::test(flavor = "multi_thread")]
async fn part_checksum_has_type_of_object() {
    let Some(harness) = bucket(DatabaseKind::Sqlite).await else { return };
    for (algorithm, kind) in [("SHA1", "COMPOSITE"), ("SHA256", "COMPOSITE"), ("CRC32", "FULL_OBJECT")] {
        let upload = begin(&harness, &[("x-amz-checksum-algorithm", algorithm), ("x-amz-checksum-type", kind)]).await;
        let sent = part(&harness, &upload, 1, "123456789").await;
        let name = format!("x-amz-checksum-{}", algorithm.to_ascii_lowercase());
        let sum = sent.header(&name).unwrap();
        let element = format!("<Checksum{algorithm}>{sum}</Checksum{algorithm}>");
        let list = named(&[(1, sent.header("etag").unwrap(), &element)]);
        assert_eq!(complete(&harness, &upload, list, &[]).await.status, 200);
        for method in ["GET", "HEAD"] {
            let call = harness.call(method, "/bucket/key?partNumber=1").header("x-amz-checksum-mode", "ENABLED");
            let got = call.send().await;
            assert_eq!((got.header(&name), got.header("x-amz-checksum-type")), (Some(sum), Some(kind)), "{algorithm}");
        }
    }
}

/// Parts can be copied from objects.
#[tokio::test(flavor = "multi_thread")]
async fn parts_are_copied_from_objects() {
    let Some(harness) = bucket(DatabaseKind::Sqlite).await else { return };
    harness.put("bucket", "from/ü 1", "0123456789").await;
    let upload = begin(&harness, &[("x-amz-checksum-algorithm", "SHA256")]).await;
    let target = format!("/bucket/key?partNumber=1&uploadId={upload}");
    let copy = |source: &str| harness.call("PUT", &target).header("x-amz-copy-source", source);
    let source = "/bucket/from/%C3%BC%201";
    for range in ["0-2", "bytes=0-", "bytes=-2", "bytes=3-2", "bytes=0-1,3-4", "bytes=5-10"] {
        assert_refused(&copy(source).header("x-amz-copy-source-range", range).send().await, 400, "InvalidArgument");
    }
    assert_refused(&copy("/bucket/missing").send().await, 404, "NoSuchKey");
    assert_refused(&copy("/nowhere/key").send().await, 404, "NoSuchBucket");
    assert_refused(
        &copy(source).header("x-amz-copy-source-if-match", "\"no\"").send().await,
        412,
        "PreconditionFailed",
    );
    let done = copy(source).header("x-amz-copy-source-range", "bytes=2-5").send().await;
    assert_eq!(done.status, 200, "{}", done.text());
    let (etag, sum) = (done.xml("ETag").unwrap(), done.xml("ChecksumSHA256").unwrap());
    let list = named(&[(1, &etag, &format!("<ChecksumSHA256>{sum}</ChecksumSHA256>"))]);
    assert_eq!(complete(&harness, &upload, list, &[]).await.status, 200);
    assert_eq!(harness.get("bucket", "key").await.text(), "2345");
}
