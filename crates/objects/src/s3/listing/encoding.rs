//! `encoding-type=url`: the encoding of keys that XML cannot contain.

use s3s::dto::EncodingType;
use s3s::{S3Result, s3_error};

/// The encoding of keys and prefixes in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::s3) enum Encoding {
    /// No encoding.
    #[default]
    Plain,
    /// Percent-encoding, except slashes.
    Url,
}

impl Encoding {
    /// Parses the encoding that a call requests.
    pub(in crate::s3) fn from_request(requested: Option<&EncodingType>) -> S3Result<Self> {
        match requested.map(EncodingType::as_str) {
            None => Ok(Encoding::Plain),
            Some(EncodingType::URL) => Ok(Encoding::Url),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    /// Encodes a key, a prefix, a delimiter or a marker.
    pub(in crate::s3) fn encode_text(self, text: String) -> String {
        match self {
            Encoding::Plain => text,
            Encoding::Url => percent_encode(&text),
        }
    }

    /// Like [`Encoding::encode_text`], but leaves texts unchanged that decode to themselves: some clients show the
    /// prefix of the old list without decoding it.
    pub(in crate::s3) fn encode_if_needed(self, text: String) -> String {
        let differs = |c: char| matches!(c, '%' | '+') || (c.is_ascii_control() && !matches!(c, '\n' | '\t'));
        if text.contains(differs) { self.encode_text(text) } else { text }
    }

    /// Returns the encoding type of the response.
    pub(in crate::s3) fn response_type(self) -> Option<EncodingType> {
        match self {
            Encoding::Plain => None,
            Encoding::Url => Some(EncodingType::from_static(EncodingType::URL)),
        }
    }
}

fn percent_encode(text: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len() + text.len() / 4);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'*' | b'/' => {
                encoded.push(char::from(byte))
            }
            other => {
                encoded.push('%');
                encoded.push(char::from(DIGITS[usize::from(other >> 4)]));
                encoded.push(char::from(DIGITS[usize::from(other & 15)]));
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are encoded so that any decoder can read them.
    #[test]
    fn encoded_keys_are_decodable() {
        let url = Encoding::from_request(Some(&EncodingType::from_static("url"))).unwrap();
        for (name, written) in [
            ("foo+1/bar", "foo%2B1/bar"),
            ("quux ab/", "quux%20ab/"),
            ("ü\u{1}", "%C3%BC%01"),
            ("100%", "100%25"),
            ("a-b_c.d~e*", "a-b_c.d~e*"),
        ] {
            assert_eq!(url.encode_text(name.to_owned()), written);
            assert_eq!(Encoding::Plain.encode_text(name.to_owned()), name);
        }
        assert_eq!(url.encode_if_needed("ü \n".to_owned()), "ü \n");
        assert_eq!(url.encode_if_needed("a+b".to_owned()), "a%2Bb");
        let refused = Encoding::from_request(Some(&EncodingType::from_static("base64"))).unwrap_err();
        assert_eq!(refused.code().as_str(), "InvalidArgument");
    }
}
