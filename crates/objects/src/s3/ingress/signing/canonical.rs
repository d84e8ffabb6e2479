//! The text that a Signature Version 4 covers, as s3s computes it, and signing it.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use http::Method;
use sha2::{Digest, Sha256};

/// The parameter of a presigned URL that holds the signature, and is not covered by it.
pub(super) const SIGNATURE: &str = "X-Amz-Signature";

/// What a signature covers of a request.
pub(super) struct Canonical<'a> {
    pub(super) method: &'a Method,
    /// The path, already in its canonical form.
    pub(super) path: &'a str,
    /// The decoded parameters.
    pub(super) query: &'a [(String, String)],
    /// The signed headers in the order of the signature. Several values of a header follow each other.
    pub(super) headers: &'a [(String, String)],
    /// The hash of the body, or the text that stands for it.
    pub(super) payload: &'a str,
}

impl Canonical<'_> {
    fn text(&self) -> String {
        let mut lines = String::new();
        let mut names: Vec<&str> = Vec::new();
        for (name, value) in self.headers.iter().filter(|(name, _)| name != "authorization") {
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            if names.last() == Some(&name.as_str()) {
                lines.pop();
                let _ = writeln!(lines, ",{value}");
            } else {
                names.push(name);
                let _ = writeln!(lines, "{name}:{value}");
            }
        }
        let query = encode_query(self.query.iter().filter(|(name, _)| name != SIGNATURE));
        let Canonical { method, path, payload, .. } = self;
        format!("{method}\n{path}\n{query}\n{lines}\n{}\n{payload}", names.join(";"))
    }

    /// Returns the text to sign.
    pub(super) fn string_to_sign(&self, time: &str, scope: &str) -> String {
        format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex::encode(Sha256::digest(self.text())))
    }
}

/// A key for signatures of one day and region.
#[derive(Clone)]
pub(super) struct SigningKey([u8; 32]);

impl SigningKey {
    /// Derives the key from the secret of an access key.
    pub(super) fn derive(secret: &str, day: &str, region: &str) -> Self {
        let key = mac(format!("AWS4{secret}").as_bytes(), day);
        let key =
            [region, "s3", "aws4_request"].into_iter().fold(key, |key, part| mac(&key.finalize().into_bytes(), part));
        SigningKey(key.finalize().into_bytes().into())
    }

    /// Returns the signature of a text.
    pub(super) fn sign(&self, text: &str) -> String {
        hex::encode(mac(&self.0, text).finalize().into_bytes())
    }

    /// Returns whether a signature is that of the text, in a time that does not depend on where they differ.
    pub(super) fn verifies(&self, text: &str, signature: &str) -> bool {
        let is_lower = !signature.bytes().any(|byte| byte.is_ascii_uppercase());
        is_lower && hex::decode(signature).is_ok_and(|given| mac(&self.0, text).verify_slice(&given).is_ok())
    }
}

fn mac(key: &[u8], text: &str) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length").chain_update(text)
}

/// Returns parameters as they are signed: escaped, and sorted by their names.
pub(super) fn encode_query<'a>(parameters: impl Iterator<Item = &'a (String, String)>) -> String {
    let mut pairs: Vec<_> = parameters.map(|(name, value)| (escape(name, true), escape(value, true))).collect();
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Escapes a text. The slashes of a path stay.
pub(super) fn escape(text: &str, slashes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'~' | b'.' => escaped.push(char::from(byte)),
            b'/' if !slashes => escaped.push('/'),
            other => drop(write!(escaped, "%{other:02X}")),
        }
    }
    escaped
}

/// Reverses the escapes of a path. `None` when the result is not UTF-8.
pub(super) fn unescape(path: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(path.len()), path.as_bytes());
    while let Some((first, others)) = rest.split_first() {
        let digits = others.get(..2).filter(|digits| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit));
        match digits.and_then(|digits| hex::decode(digits).ok()) {
            Some(byte) => {
                bytes.extend(byte);
                rest = &others[2..];
            }
            None => {
                bytes.push(*first);
                rest = others;
            }
        }
    }
    String::from_utf8(bytes).ok()
}
