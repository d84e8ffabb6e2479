//! Signs a request again that s3s would refuse although S3 accepts it.
//!
//! s3s refuses regions with dots, underscores or capitals, and ranges that S3 ignores. Both may be signed, so they can
//! only be changed together with the signature. The signature of the client is verified first, and s3s then verifies
//! the new one: a request that this module reads differently from s3s is refused.

use http::header::{AUTHORIZATION, HOST, RANGE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri, Version};

use super::authorization::{Authorization, Credential};
use super::canonical::{Canonical, SIGNATURE, SigningKey, encode_query, escape, unescape};
use super::chunk_signatures::ChunkKeys;
use crate::s3::REGION;
use crate::{Objects, Result};

/// The hash of a body that is not part of the signature.
const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// How a request is signed.
struct Signed {
    in_query: bool,
    access_key: String,
    day: String,
    region: String,
    time: String,
    headers: Vec<String>,
    signature: String,
    payload: String,
}

/// Changes a request so that s3s accepts it, if that is needed and its signature is right. Returns the keys for its
/// chunks if they are signed, too.
pub(in crate::s3) async fn resign(objects: &Objects, parts: &mut Parts) -> Result<Option<ChunkKeys>> {
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let drops_range = is_read && has_ignored_range(&parts.headers);
    if !drops_range && parts.uri.query().is_none() && is_readable_by_s3s(&parts.headers) {
        return Ok(None);
    }
    let query: Vec<(String, String)> =
        parts.uri.query().and_then(|query| serde_urlencoded::from_str(query).ok()).unwrap_or_default();
    let signed = Signed::of_query(&query).or_else(|| Signed::of_header(&parts.headers));
    let needs_region = signed.as_ref().is_some_and(|signed| !is_known_to_s3s(&signed.region));
    let signs_range = signed.as_ref().is_some_and(|signed| signed.headers.iter().any(|name| name == RANGE.as_str()));
    let signed = match signed {
        Some(signed) if needs_region || (drops_range && signs_range) => signed,
        // The range is not part of the signature.
        Some(_) | None => {
            if drops_range {
                parts.headers.remove(RANGE);
            }
            return Ok(None);
        }
    };
    add_host(parts);
    // s3s refuses a key that does not exist, and a signature that is wrong.
    if objects.holder_of(&signed.access_key).await?.is_none() {
        return Ok(None);
    }
    let secret = objects.secret_of(&signed.access_key);
    Ok(signed.replace(parts, query, &secret, drops_range))
}

impl Signed {
    fn of_query(query: &[(String, String)]) -> Option<Self> {
        let value = |name: &str| {
            let mut values = query.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone());
            values.next().filter(|_| values.next().is_none())
        };
        let signature = value(SIGNATURE)?;
        let headers = value("X-Amz-SignedHeaders")?.split(';').map(str::to_owned).collect();
        let (time, payload) = (value("X-Amz-Date")?, UNSIGNED.to_owned());
        let (access_key, day, region) = scope_of_s3(&Credential::parse(&value("X-Amz-Credential")?)?)?;
        Some(Signed { in_query: true, access_key, day, region, time, headers, signature, payload })
    }

    fn of_header(all: &HeaderMap) -> Option<Self> {
        let text = |name: &str| all.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let Authorization { credential, signed_headers, signature } = Authorization::of(all)?;
        let mut headers: Vec<String> = signed_headers.split(';').map(str::to_owned).collect();
        headers.sort_unstable();
        let (time, payload) = (text("x-amz-date")?, text("x-amz-content-sha256")?);
        let ((access_key, day, region), signature) = (scope_of_s3(&credential)?, signature.to_owned());
        Some(Signed { in_query: false, access_key, day, region, time, headers, signature, payload })
    }

    /// Verifies the signature, and replaces it by one for a region that s3s knows. Leaves a wrong one as it is.
    fn replace(
        mut self,
        parts: &mut Parts,
        mut query: Vec<(String, String)>,
        secret: &str,
        drops_range: bool,
    ) -> Option<ChunkKeys> {
        let key = SigningKey::derive(secret, &self.day, &self.region);
        let path = escape(&unescape(parts.uri.path())?, false);
        let is_right = |path: &str| key.verifies(&self.string_to_sign(parts, path, &query), &self.signature);
        // s3s also accepts a path that the client has not escaped.
        if !is_right(&path) && !is_right(parts.uri.path()) {
            return None;
        }
        let (old, old_signature) = ((key, self.scope()), std::mem::take(&mut self.signature));
        REGION.clone_into(&mut self.region);
        if drops_range {
            parts.headers.remove(RANGE);
            self.headers.retain(|name| name != RANGE.as_str());
        }
        let names = self.headers.join(";");
        let credential = format!("{}/{}", self.access_key, self.scope());
        for (name, value) in &mut query {
            match name.as_str() {
                "X-Amz-Credential" if self.in_query => value.clone_from(&credential),
                "X-Amz-SignedHeaders" if self.in_query => value.clone_from(&names),
                _ => {}
            }
        }
        let key = SigningKey::derive(secret, &self.day, &self.region);
        let signature = key.sign(&self.string_to_sign(parts, &path, &query));
        if self.in_query {
            query.retain(|(name, _)| name != SIGNATURE);
            query.push((SIGNATURE.to_owned(), signature));
            parts.uri = with_query(&parts.uri, &encode_query(query.iter()))?;
            return None;
        }
        let header = format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}");
        parts.headers.insert(AUTHORIZATION, HeaderValue::from_str(&header).ok()?);
        let time = self.time.clone();
        let are_chunks_signed = self.payload.starts_with("STREAMING-AWS4-HMAC-SHA256-PAYLOAD");
        are_chunks_signed.then(|| ChunkKeys::new(time, old, old_signature, (key, self.scope()), signature))
    }

    fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", self.day, self.region)
    }

    fn string_to_sign(&self, parts: &Parts, path: &str, query: &[(String, String)]) -> String {
        let mut headers = Vec::new();
        for name in self.headers.iter().filter(|name| !name.bytes().any(|byte| byte.is_ascii_uppercase())) {
            let values = parts.headers.get_all(name.as_str()).iter();
            let values = values.filter_map(|value| std::str::from_utf8(value.as_bytes()).ok());
            headers.extend(values.map(|value| (name.clone(), value.to_owned())));
        }
        let (method, headers, payload) = (&parts.method, headers.as_slice(), self.payload.as_str());
        Canonical { method, path, query, headers, payload }.string_to_sign(&self.time, &self.scope())
    }
}

/// Returns whether nothing in the signature of the header keeps s3s from reading it. Almost all calls are signed like
/// that, so this copies nothing.
fn is_readable_by_s3s(headers: &HeaderMap) -> bool {
    Authorization::of(headers).is_none_or(|signed| is_known_to_s3s(signed.credential.region))
}

/// Returns the access key, the day and the region of a credential.
fn scope_of_s3(credential: &Credential<'_>) -> Option<(String, String, String)> {
    let Credential { access_key, day, region, service } = credential;
    (*service == "s3").then(|| ((*access_key).to_owned(), (*day).to_owned(), (*region).to_owned()))
}

fn is_known_to_s3s(region: &str) -> bool {
    region.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns whether a request has a range that S3 ignores: malformed, of another unit, or of several parts.
fn has_ignored_range(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(RANGE).iter();
    let Some(first) = values.next() else {
        return false;
    };
    // s3s reads a suffix without a length as one of no bytes.
    let is_unusable = |range: &str| range == "bytes=-" || s3s::dto::Range::parse(range).is_err();
    values.next().is_some() || first.to_str().map_or(true, is_unusable)
}

/// Adds the header that HTTP/2 replaces by `:authority`, as s3s does.
fn add_host(parts: &mut Parts) {
    if parts.version >= Version::HTTP_2
        && !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
}

fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok()?);
    Uri::from_parts(parts).ok()
}
