//! An S3 call with a signature (version 4), for an object whose key needs no escaping.

use std::time::Duration;

use http::Method;
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Result};
use crate::transport::addresses;
use crate::transport::http_client::{build_client, innermost_cause, read_limited};

/// The timeout of a call, and the maximum size of its response.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_RESPONSE: usize = 64 << 10;

/// The maximum length of an error that is shown.
const MAX_SHOWN: usize = 200;

/// The keys of an account, and the endpoint that accepts them.
pub(super) struct Keys {
    pub(super) access_key: String,
    pub(super) secret: String,
    pub(super) endpoint: String,
    pub(super) region: String,
}

impl Keys {
    /// The URL of an object.
    pub(super) fn object(&self, bucket: &str, name: &str) -> String {
        format!("{}/{bucket}/{name}", self.endpoint)
    }

    /// The `authorization` header.
    fn authorization_header(&self, method: &Method, url: &str, hash: &str, date: &str) -> Option<String> {
        let (host, path) = url.split_once("://")?.1.split_once('/')?;
        let day = date.get(..8)?;
        let names = "host;x-amz-content-sha256;x-amz-date";
        let headers = format!("host:{host}\nx-amz-content-sha256:{hash}\nx-amz-date:{date}\n");
        let canonical = format!("{method}\n/{path}\n\n{headers}\n{names}\n{hash}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex::encode(Sha256::digest(canonical.as_bytes())));
        let first = hmac(format!("AWS4{}", self.secret).as_bytes(), day.as_bytes());
        let parts = [self.region.as_str(), "s3", "aws4_request"];
        let key = parts.iter().fold(first, |key, part| hmac(&key, part.as_bytes()));
        let signature = hex::encode(hmac(&key, text.as_bytes()));
        let access_key = &self.access_key;
        Some(format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"))
    }
}

/// Calls S3 and returns the body of the response.
pub(super) async fn signed_call(keys: &Keys, method: &Method, url: &str, body: &[u8], date: &str) -> Result<Vec<u8>> {
    let (hash, host) = (hex::encode(Sha256::digest(body)), addresses::host_of_url(url));
    let signed = keys.authorization_header(method, url, &hash, date);
    let signed = signed
        .ok_or_else(|| Failure::new(format!("the engine sent {url:?} as the S3 endpoint, which is not a URL")))?;
    let request = build_client(url)?.request(method.clone(), url).timeout(CALL_TIMEOUT).body(body.to_vec());
    let request =
        request.header("authorization", signed).header("x-amz-date", date).header("x-amz-content-sha256", hash);
    let broken = |e: reqwest::Error| Failure::new(format!("cannot reach S3 at {host}: {}", innermost_cause(&e)));
    let response = request.send().await.map_err(broken)?;
    let status = response.status();
    let text = read_limited(response, MAX_RESPONSE).await.map_err(broken)?;
    if status.is_success() {
        Ok(text)
    } else {
        let said = String::from_utf8_lossy(&text);
        let said = tarn_base::plain(&said, MAX_SHOWN);
        Err(Failure::new(format!("S3 at {host} responds with status {status}: {said}")))
    }
}

/// HMAC-SHA-256. A key longer than a block is hashed first; only the secret can be that long.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key)
    } else {
        block[..32].copy_from_slice(&Sha256::digest(key))
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_matches_rfc_4231() {
        let short = hex::encode(hmac(b"Jefe", b"what do ya want for nothing?"));
        assert_eq!(short, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hex::encode(hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"));
        assert_eq!(long, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
