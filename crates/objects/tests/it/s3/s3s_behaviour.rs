//! The behaviour of s3s 0.14.1 that the adapter in `src/s3` relies on or works around, with a test for each line. A test
//! that fails after an upgrade names the code to look at again.
//!
//! 1. A chunk of a body in aws-chunked is held in memory until it is complete (`ingress/chunks.rs`):
//!    [`chunk_is_held_until_it_is_complete`].
//! 2. Such a body is complete without its last chunk (`ingress/chunks.rs`): [`last_chunk_may_be_missing`].
//! 3. Only eight digits of the size of a chunk are read (`ingress/chunks.rs`): [`ninth_digit_of_a_size_is_ignored`].
//! 4. What follows the last chunk is limited (`ingress/chunks.rs`): [`trailers_are_limited`].
//! 5. The errors of bodies are only texts (`shared/body.rs`): [`trailers_are_limited`], [`body_errors_have_their_texts`],
//!    and `objects::signed_chunks_are_verified`.
//! 6. An XML body that is not the signed one is an internal error without a message (`ingress/responses.rs`):
//!    [`mismatched_xml_is_an_internal_error`].
//! 7. A HEAD of a range has status 200 (`ingress/responses.rs`): [`head_of_a_range_is_200`].
//! 8. A missing operation has a message that promises it (`ingress/responses.rs`): [`missing_operations_are_promised`].
//! 9. Its own errors have no message (`ingress/responses.rs`): [`own_errors_have_no_message`].
//! 10. A 304 has a body (`ingress/responses.rs`): [`not_modified_has_a_body`].
//! 11. A key may contain NUL (`ingress/front.rs`): [`key_may_contain_nul`].
//! 12. A form becomes a put (`objects/post_object.rs`, `service.rs`): [`form_becomes_a_put`]. That ours are refused
//!     before they are read: `authorization::forms_are_refused_unread`.
//! 13. Names of query parameters are unescaped (`ingress/signing`): [`query_names_are_unescaped`].
//! 14. Headers that change the meaning of a call need no signature (`ingress/signing`):
//!     [`unsigned_headers_are_accepted`].
//! 15. A header that is not UTF-8 is left out of the signature (`ingress/signing`):
//!     [`other_encodings_break_the_signature`].
//! 16. A region with other characters is refused (`ingress/signing/resign.rs`): [`malformed_region_is_refused`].
//! 17. The age of a signature is measured by the clock of the host: `authorization::unsigned_calls_are_refused`.
//! 18. The key is looked up and access is checked in the task of the call, before the body is read
//!     (`ingress/access.rs`): [`access_is_checked_before_the_body`].
//! 19. A list of ETags is one ETag (`shared/conditions.rs`): [`etag_list_is_one_etag`].
//! 20. The conditions of a copy on its destination are not parsed (`objects/copy_object.rs`):
//!     [`destination_conditions_are_not_parsed`].
//! 21. An empty Content-MD5 counts as absent (`shared/body.rs`): [`empty_md5_is_ignored`].
//! 22. A signature for the service `sts` is accepted (`ingress/signing`): [`another_service_is_accepted`].
//! 23. A range that S3 ignores is refused (`ingress/signing/resign.rs`): [`malformed_range_is_refused`].
//! 24. A parameter that is there twice is left out of a signature of version 2, and selects the operation
//!     (`ingress/signing/old_urls.rs`): [`repeated_parameters_are_unsigned`].
//! 25. A signature in a URL that is not one is a malformed request (`ingress/signing`):
//!     [`shortened_signature_is_malformed`].
//! 26. The ETag of GetObjectAttributes has quotes (`ingress/responses.rs`): `multipart::part_checksums_combine` tests
//!     that ours has none.
//! 27. The algorithm in the header may be any word, and the names of signed headers that are not there, as all with
//!     capitals, are left out (`ingress/signing/authorization.rs`): [`disguised_headers_are_accepted`]. That ours refuses
//!     them: `authorization::unsigned_header_cannot_be_added`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use http_body::Frame;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::dto::*;
use s3s::service::S3ServiceBuilder;
use s3s::{Body, S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use tarn_store::testing::DatabaseKind;

use crate::s3::harness::{Call, Harness, Response};

/// A backend that notes the inputs that s3s passes to it.
#[derive(Clone, Default)]
struct Backend {
    inputs: Arc<Mutex<Vec<String>>>,
    refuses: bool,
}

impl Backend {
    fn note(&self, input: String) {
        self.inputs.lock().unwrap().push(input);
    }

    fn noted(&self) -> String {
        self.inputs.lock().unwrap().join("\n")
    }
}

#[async_trait]
impl S3 for Backend {
    async fn put_object(&self, mut request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let (mut length, mut error) = (0, None);
        if let Some(mut body) = request.input.body.take() {
            while let Some(piece) = body.next().await {
                match piece {
                    Ok(piece) => length += piece.len(),
                    Err(why) => error = Some(why.to_string()),
                }
            }
        }
        self.note(format!("put: {length} bytes, error {error:?}, {:?}", request.input));
        Ok(S3Response::new(PutObjectOutput::default()))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        self.note(format!("get: {:?}", request.input));
        let mut error = S3Error::with_message(S3ErrorCode::Custom("NotModified".into()), "Not Modified");
        error.set_status_code(http::StatusCode::NOT_MODIFIED);
        Err(error)
    }

    async fn head_object(&self, _: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        let content_range = Some("bytes 0-0/2".to_owned());
        Ok(S3Response::new(HeadObjectOutput { content_range, ..Default::default() }))
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        self.note(format!("copy: {:?}", request.input));
        Ok(S3Response::new(CopyObjectOutput::default()))
    }

    async fn put_bucket_versioning(
        &self,
        _: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        Ok(S3Response::new(PutBucketVersioningOutput::default()))
    }
}

tokio::task_local! {
    static IS_IN_TASK: bool;
}

#[async_trait]
impl S3Access for Backend {
    async fn check(&self, _: &mut S3AccessContext<'_>) -> S3Result<()> {
        self.note(format!("access in the task: {}", IS_IN_TASK.try_with(|is_in_task| *is_in_task).unwrap_or(false)));
        if self.refuses { Err(s3_error!(AccessDenied, "no")) } else { Ok(()) }
    }
}

/// Sends a call with this body to s3s, without anything of ours in front of it.
async fn send(backend: &Backend, call: Call, body: Body) -> Response {
    send_changed(backend, call, body, |_| ()).await
}

/// Like `send`, but changes the headers after they are signed.
async fn send_changed(
    backend: &Backend,
    call: Call,
    body: Body,
    change: impl FnOnce(&mut http::HeaderMap),
) -> Response {
    let mut builder = S3ServiceBuilder::new(backend.clone());
    builder.set_auth(SimpleAuth::from_single(call.signer.access_key.clone(), call.signer.secret.clone()));
    builder.set_access(backend.clone());
    let query = if call.query.is_empty() { String::new() } else { format!("?{}", call.query) };
    let mut request = http::Request::builder().method(call.method.as_str()).uri(format!("{}{query}", call.path));
    for (name, value) in &call.headers {
        request = request.header(name, value);
    }
    let mut request = request.body(body).unwrap();
    change(request.headers_mut());
    let response = IS_IN_TASK.scope(true, builder.build().call(request)).await.unwrap();
    let (parts, mut body) = response.into_parts();
    let body = body.store_all_limited(usize::MAX).await.unwrap().to_vec();
    Response { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// Signs a call and sends it with its own body; returns what the backend noted.
async fn passed(call: Call, payload: &str) -> (Response, String) {
    let backend = Backend::default();
    let body = call.body.clone();
    let length = body.len().to_string();
    let call = call.header("content-length", &length).sign(payload).0;
    let response = send(&backend, call, Body::from(body)).await;
    (response, backend.noted())
}

/// Puts a body in unsigned chunks, which arrive in these pieces.
async fn put_chunks(pieces: Vec<Result<&'static [u8], std::io::Error>>) -> String {
    let backend = Backend::default();
    let call = harness().await.call("PUT", "/photos/a").header("x-amz-decoded-content-length", "5");
    let call = call.header("content-encoding", "aws-chunked").header("x-amz-trailer", "x-amz-checksum-crc32");
    let call = call.sign("STREAMING-UNSIGNED-PAYLOAD-TRAILER").0;
    let frames = pieces.into_iter().map(|piece| piece.map(|piece| Frame::data(Bytes::from_static(piece))));
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
    assert_eq!(send(&backend, call, Body::http_body_unsync(body)).await.status, 200);
    backend.noted()
}

async fn harness() -> Harness {
    Harness::new(DatabaseKind::Sqlite).await.unwrap()
}

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

#[tokio::test]
async fn chunk_is_held_until_it_is_complete() {
    let cut = std::io::Error::other("the connection ended");
    let noted = put_chunks(vec![Ok(b"8\r\n"), Ok(b"half"), Err(cut)]).await;
    assert!(noted.contains("put: 0 bytes, error Some"), "{noted}");
}

#[tokio::test]
async fn last_chunk_may_be_missing() {
    let noted = put_chunks(vec![Ok(b"5\r\nhello\r\n")]).await;
    assert!(noted.contains("put: 5 bytes, error None"), "{noted}");
}

#[tokio::test]
async fn ninth_digit_of_a_size_is_ignored() {
    let noted = put_chunks(vec![Ok(b"000000005\r\nhello\r\n0\r\n\r\n")]).await;
    assert!(noted.contains("put: 0 bytes"), "{noted}");
}

#[tokio::test]
async fn trailers_are_limited() {
    let noted = put_chunks(vec![Ok(b"0\r\nx-amz-checksum-crc32:"), Ok(&[b'a'; 20_000])]).await;
    assert!(noted.contains("TooLarge"), "{noted}");
    let noted =
        put_chunks([Ok(b"0\r\n".as_slice())].into_iter().chain((0..101).map(|_| Ok(b"a:b\r\n".as_slice()))).collect());
    assert!(noted.await.contains("TooManyTrailerHeaders"));
}

#[tokio::test]
async fn body_errors_have_their_texts() {
    let noted = put_chunks(vec![Ok(b"zz\r\n")]).await;
    assert!(noted.contains("FormatError"), "{noted}");
    let (_, noted) = passed(harness().await.call("PUT", "/photos/a").body("hello"), &"0".repeat(64)).await;
    assert!(noted.contains("Sha256Mismatch"), "{noted}");
}

#[tokio::test]
async fn mismatched_xml_is_an_internal_error() {
    let body = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let harness = harness().await;
    let call = || harness.call("PUT", "/photos?versioning").body(body);
    assert_eq!(passed(call(), UNSIGNED).await.0.status, 200);
    let (response, _) = passed(call(), &"0".repeat(64)).await;
    assert_eq!((response.refusal(), response.xml("Message")), ((500, "InternalError".to_owned()), None));
}

#[tokio::test]
async fn head_of_a_range_is_200() {
    let call = harness().await.call("HEAD", "/photos/a").header("range", "bytes=0-0");
    let (response, _) = passed(call, UNSIGNED).await;
    assert_eq!((response.status, response.header("content-range")), (200, Some("bytes 0-0/2")));
}

#[tokio::test]
async fn missing_operations_are_promised() {
    let (response, _) = passed(harness().await.call("GET", "/photos?website"), UNSIGNED).await;
    assert_eq!(response.refusal(), (501, "NotImplemented".to_owned()));
    assert_eq!(response.xml("Message").as_deref(), Some("GetBucketWebsite is not implemented yet"));
}

#[tokio::test]
async fn own_errors_have_no_message() {
    let (response, _) = passed(harness().await.call("GET", "/Photos_/a"), UNSIGNED).await;
    assert_eq!((response.refusal(), response.xml("Message")), ((400, "InvalidBucketName".to_owned()), None));
}

#[tokio::test]
async fn not_modified_has_a_body() {
    let (response, _) = passed(harness().await.call("GET", "/photos/a"), UNSIGNED).await;
    assert_eq!((response.status, response.body.is_empty()), (304, false));
}

#[tokio::test]
async fn key_may_contain_nul() {
    let (_, noted) = passed(harness().await.call("GET", "/photos/a%00b"), UNSIGNED).await;
    assert!(noted.contains("a\\0b"), "{noted}");
}

#[tokio::test]
async fn form_becomes_a_put() {
    let backend = Backend::default();
    let mut input = PostObjectInput::builder();
    input.set_bucket("photos".to_owned()).set_key("a".to_owned());
    let request = S3Request {
        input: input.build().unwrap(),
        method: http::Method::POST,
        uri: "/photos".parse().unwrap(),
        headers: http::HeaderMap::new(),
        extensions: http::Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    };
    S3::post_object(&backend, request).await.unwrap();
    assert!(backend.noted().contains("put: "));
}

#[tokio::test]
async fn query_names_are_unescaped() {
    let backend = Backend::default();
    let mut call = harness().await.call("PUT", "/photos/a").presigned(60);
    call.query = call.query.replace("X-Amz-SignedHeaders", "X-Amz-Signed%48eaders");
    assert_eq!(send(&backend, call, Body::empty()).await.status, 200);
}

#[tokio::test]
async fn unsigned_headers_are_accepted() {
    let backend = Backend::default();
    let call = harness().await.call("PUT", "/photos/a").presigned(60).header("x-amz-copy-source", "/photos/secret");
    assert_eq!(send(&backend, call, Body::empty()).await.status, 200);
    assert!(backend.noted().contains("copy: "), "{}", backend.noted());
}

#[tokio::test]
async fn disguised_headers_are_accepted() {
    for (from, to) in [
        ("AWS4-HMAC-SHA256", "SignedHeaders=x-amz-copy-source,"),
        ("AWS4-HMAC-SHA256", "\u{e9}"),
        ("SignedHeaders=", "SignedHeaders=X-Amz-Copy-Source;"),
    ] {
        let backend = Backend::default();
        let call = harness().await.call("PUT", "/photos/a").header("content-length", "0").sign(UNSIGNED).0;
        let authorization = &call.headers.iter().find(|(name, _)| name == "authorization").unwrap().1;
        let disguised = authorization.replacen(from, to, 1);
        let call = call.header("authorization", &disguised).header("x-amz-copy-source", "/photos/secret");
        assert_eq!(send(&backend, call, Body::empty()).await.status, 200);
        assert!(backend.noted().contains("copy: "), "{}", backend.noted());
    }
}

#[tokio::test]
async fn other_encodings_break_the_signature() {
    let harness = harness().await;
    let call = || harness.call("PUT", "/photos/a").header("x-amz-meta-a", "\u{e9}").sign(UNSIGNED).0;
    assert_eq!(send(&Backend::default(), call(), Body::empty()).await.status, 200);
    let latin = http::HeaderValue::from_bytes(b"\xe9").unwrap();
    let change = |headers: &mut http::HeaderMap| drop(headers.insert("x-amz-meta-a", latin));
    let response = send_changed(&Backend::default(), call(), Body::empty(), change).await;
    assert_eq!(response.refusal(), (403, "SignatureDoesNotMatch".to_owned()));
}

#[tokio::test]
async fn malformed_region_is_refused() {
    let mut call = harness().await.call("PUT", "/photos/a");
    call.signer.region = "US".to_owned();
    let (response, _) = passed(call, UNSIGNED).await;
    assert!(response.status >= 400 && response.xml("Region").is_none(), "{}", response.text());
}

#[tokio::test]
async fn malformed_range_is_refused() {
    let (response, _) = passed(harness().await.call("GET", "/photos/a").header("range", "bytes=2-1"), UNSIGNED).await;
    assert_eq!(response.status, 400, "{}", response.text());
}

#[tokio::test]
async fn repeated_parameters_are_unsigned() {
    let backend = Backend::default();
    let mut call = harness().await.call("PUT", "/photos").presigned_by_old_version(4_000_000_000);
    call.query.push_str("&versioning&versioning");
    let body = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let call = call.header("content-length", &body.len().to_string());
    assert_eq!(send(&backend, call, Body::from(body.to_owned())).await.status, 200);
}

#[tokio::test]
async fn shortened_signature_is_malformed() {
    let mut call = harness().await.call("GET", "/photos/a").presigned(60);
    call.query.pop();
    assert_eq!(send(&Backend::default(), call, Body::empty()).await.status, 400);
}

#[tokio::test]
async fn another_service_is_accepted() {
    let mut call = harness().await.call("GET", "/photos/a");
    call.signer.service = "sts";
    let (_, noted) = passed(call, UNSIGNED).await;
    assert!(noted.contains("get: "), "{noted}");
}

#[tokio::test]
async fn access_is_checked_before_the_body() {
    let backend = Backend { refuses: true, ..Backend::default() };
    let is_read = Arc::new(AtomicBool::new(false));
    let reader = is_read.clone();
    let frames = futures::stream::once(async move {
        reader.store(true, Ordering::Relaxed);
        Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"hello")))
    });
    let call = harness().await.call("PUT", "/photos/a").header("content-length", "5").sign(UNSIGNED).0;
    let body = Body::http_body_unsync(http_body_util::StreamBody::new(frames));
    assert_eq!(send(&backend, call, body).await.status, 403);
    assert!(!is_read.load(Ordering::Relaxed));
    assert_eq!(backend.noted(), "access in the task: true");
}

#[tokio::test]
async fn etag_list_is_one_etag() {
    let call = harness().await.call("GET", "/photos/a").header("if-none-match", "\"a\", \"b\"");
    let (_, noted) = passed(call, UNSIGNED).await;
    assert!(noted.contains(r#"if_none_match: ETag(Strong("a\", \"b"))"#), "{noted}");
}

#[tokio::test]
async fn destination_conditions_are_not_parsed() {
    let call = harness().await.call("PUT", "/photos/a").header("x-amz-copy-source", "/photos/b");
    let (_, noted) = passed(call.header("if-none-match", "*").header("if-match", "\"a\""), UNSIGNED).await;
    assert!(noted.contains("copy: ") && !noted.contains(" if_none_match") && !noted.contains(" if_match"), "{noted}");
}

#[tokio::test]
async fn empty_md5_is_ignored() {
    let harness = harness().await;
    let put = |md5: &str| passed(harness.call("PUT", "/photos/a").header("content-md5", md5).body("a"), UNSIGNED);
    assert!(put("DMF1ucDxtqgxw5niaXcmYQ==").await.1.contains("content_md5"));
    let (response, noted) = put("").await;
    assert!(response.status == 200 && !noted.contains("content_md5"), "{noted}");
}
