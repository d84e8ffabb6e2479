//! A call of S3 with its signature (version 4), for an object whose name needs no escaping.

use std::time::Duration;

use http::Method;
use sha2::{Digest, Sha256};

use crate::addresses;
use crate::connections::{client_for, read, reason};
use crate::failure::{Failure, Result};

/// How long an answer may take, and how much of it is read.
const PATIENCE: Duration = Duration::from_secs(60);
const MAX_ANSWER: usize = 64 << 10;

/// As much of an error as is shown.
const MAX_SHOWN: usize = 200;

/// The keys of an account, and where they are good.
pub(super) struct Keys {
    pub(super) access_key: String,
    pub(super) secret: String,
    pub(super) endpoint: String,
    pub(super) region: String,
}

impl Keys {
    /// The address of an object.
    pub(super) fn object(&self, bucket: &str, name: &str) -> String {
        format!("{}/{bucket}/{name}", self.endpoint)
    }

    /// The header that says who calls.
    fn authorization(&self, method: &Method, url: &str, hash: &str, date: &str) -> Option<String> {
        let (host, path) = url.split_once("://")?.1.split_once('/')?;
        let day = date.get(..8)?;
        let names = "host;x-amz-content-sha256;x-amz-date";
        let headers = format!("host:{host}\nx-amz-content-sha256:{hash}\nx-amz-date:{date}\n");
        let canonical = format!("{method}\n/{path}\n\n{headers}\n{names}\n{hash}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
        let first = hmac(format!("AWS4{}", self.secret).as_bytes(), day.as_bytes());
        let parts = [self.region.as_str(), "s3", "aws4_request"];
        let key = parts.iter().fold(first, |key, part| hmac(&key, part.as_bytes()));
        let signature = hex(&hmac(&key, text.as_bytes()));
        let access_key = &self.access_key;
        Some(format!("AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"))
    }
}

/// Calls; what is answered.
pub(super) async fn call(keys: &Keys, method: &Method, url: &str, body: &[u8], date: &str) -> Result<Vec<u8>> {
    let (hash, host) = (hex(&Sha256::digest(body)), addresses::host_of(url));
    let signed = keys.authorization(method, url, &hash, date);
    let signed =
        signed.ok_or_else(|| Failure::new(format!("the engine says that S3 is at {url:?}, which is no address")))?;
    let request = client_for(url)?.request(method.clone(), url).timeout(PATIENCE).body(body.to_vec());
    let request =
        request.header("authorization", signed).header("x-amz-date", date).header("x-amz-content-sha256", hash);
    let broken = |e: reqwest::Error| Failure::new(format!("S3 at {host} cannot be reached: {}", reason(&e)));
    let answer = request.send().await.map_err(broken)?;
    let status = answer.status();
    let text = read(answer, MAX_ANSWER).await.map_err(broken)?;
    match status.is_success() {
        true => Ok(text),
        false => {
            let said: String = String::from_utf8_lossy(&text).chars().take(MAX_SHOWN).collect();
            Err(Failure::new(format!("S3 at {host} answers with status {status}: {said}")))
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Keys that are longer than a block are no part of this protocol but for secrets, which are hashed then.
fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    match key.len() <= block.len() {
        true => block[..key.len()].copy_from_slice(key),
        false => block[..32].copy_from_slice(&Sha256::digest(key)),
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_hashes_are_those_of_the_standard() {
        let short = hex(&hmac(b"Jefe", b"what do ya want for nothing?"));
        assert_eq!(short, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hex(&hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"));
        assert_eq!(long, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
