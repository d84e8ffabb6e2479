//! Signature Version 4, as a client computes it.

use std::fmt::Write as _;
use std::time::SystemTime;

use s3s::dto::{Timestamp, TimestampFormat};
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// An access key with its secret, and the time of the signature.
#[derive(Clone)]
pub(crate) struct Signer {
    pub(crate) access_key: String,
    pub(crate) secret: String,
    /// As `20261116T070000Z`.
    pub(crate) date: String,
    pub(crate) region: String,
    pub(crate) service: &'static str,
}

impl Signer {
    #[allow(clippy::disallowed_methods, reason = "a signature is only good near the present, and s3s asks the system")]
    pub(crate) fn new(access_key: &str, secret: &str) -> Self {
        let (access_key, secret, region) = (access_key.to_owned(), secret.to_owned(), "global".to_owned());
        Signer { access_key, secret, region, service: "s3", date: amz_date(SystemTime::now()) }
    }

    pub(crate) fn scope(&self) -> String {
        format!("{}/{}/{}/aws4_request", &self.date[..8], self.region, self.service)
    }

    /// Returns the signature of a text.
    pub(crate) fn sign(&self, text: &str) -> String {
        let day = hmac(format!("AWS4{}", self.secret).as_bytes(), &self.date.as_bytes()[..8]);
        let key = [self.service, "aws4_request"]
            .iter()
            .fold(hmac(&day, self.region.as_bytes()), |key, part| hmac(&key, part.as_bytes()));
        hex::encode(hmac(&key, text.as_bytes()))
    }

    /// Returns the signature of a request. Headers must be sorted and in lower case, the query sorted.
    pub(crate) fn sign_request(
        &self,
        method: &str,
        path: &str,
        query: &str,
        headers: &[(String, String)],
        payload: &str,
    ) -> String {
        let mut lines = String::new();
        for (name, value) in headers {
            writeln!(lines, "{name}:{}", value.trim()).unwrap();
        }
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{}\n{payload}", names(headers));
        let hash = hex::encode(Sha256::digest(canonical.as_bytes()));
        self.sign(&format!("AWS4-HMAC-SHA256\n{}\n{}\n{hash}", self.date, self.scope()))
    }

    /// Returns the signature of a text by Signature Version 2.
    pub(crate) fn sign_by_old_version(&self, text: &str) -> String {
        let mut block = [0; 64];
        block[..self.secret.len()].copy_from_slice(self.secret.as_bytes());
        let inner = Sha1::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
        let sum = Sha1::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
        base64_simd::STANDARD.encode_to_string(sum)
    }

    /// Returns a body in signed chunks, starting from the signature of its request.
    pub(crate) fn chunks(&self, seed: &str, body: &[u8], size: usize) -> Vec<u8> {
        self.chain(seed, body, size).0
    }

    /// Returns a body in signed chunks with a signed trailer.
    pub(crate) fn chunks_with_trailer(&self, seed: &str, body: &[u8], size: usize, trailer: &str) -> Vec<u8> {
        let (mut out, last) = self.chain(seed, body, size);
        out.truncate(out.len() - 2);
        let hash = hex::encode(Sha256::digest(format!("{trailer}\n")));
        let signature =
            self.sign(&format!("AWS4-HMAC-SHA256-TRAILER\n{}\n{}\n{last}\n{hash}", self.date, self.scope()));
        out.extend_from_slice(format!("{trailer}\r\nx-amz-trailer-signature:{signature}\r\n\r\n").as_bytes());
        out
    }

    fn chain(&self, seed: &str, body: &[u8], size: usize) -> (Vec<u8>, String) {
        let mut previous = seed.to_owned();
        let mut out = Vec::new();
        for chunk in body.chunks(size).chain([&[][..]]) {
            let (empty, hash) = (hex::encode(Sha256::digest([])), hex::encode(Sha256::digest(chunk)));
            let scope = self.scope();
            let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{}\n{scope}\n{previous}\n{empty}\n{hash}", self.date);
            previous = self.sign(&text);
            out.extend_from_slice(format!("{:x};chunk-signature={previous}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        (out, previous)
    }
}

/// Returns the names of headers, as a signature lists them.
pub(crate) fn names(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";")
}

pub(crate) fn amz_date(time: SystemTime) -> String {
    let mut text = Vec::new();
    Timestamp::from(time).format(TimestampFormat::DateTime, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    format!("{}Z", text.split('.').next().unwrap().replace(['-', ':'], ""))
}

/// Escapes a key for a path; slashes stay.
pub(crate) fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn hmac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}
