//! `encoding-type=url`: how lists write keys that XML cannot hold.

use s3s::dto::EncodingType;
use s3s::{S3Result, s3_error};

/// How a list writes keys and what comes from keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::s3) enum Encoding {
    /// As they are.
    #[default]
    Plain,
    /// As in an address, with the slashes left as they are.
    Url,
}

impl Encoding {
    /// The one that a call asks for.
    pub(in crate::s3) fn of(asked: Option<&EncodingType>) -> S3Result<Self> {
        match asked.map(EncodingType::as_str) {
            None => Ok(Encoding::Plain),
            Some(EncodingType::URL) => Ok(Encoding::Url),
            Some(_) => Err(s3_error!(InvalidArgument, "Invalid Encoding Method specified in Request")),
        }
    }

    /// A key, a prefix, a delimiter or a marker as the list writes it.
    pub(in crate::s3) fn text(self, text: String) -> String {
        match self {
            Encoding::Plain => text,
            Encoding::Url => encoded(&text),
        }
    }

    /// As [`Encoding::text`], but left alone where that makes no difference to who decodes it: some clients show the prefix
    /// of the old list as it came.
    pub(in crate::s3) fn gentle(self, text: String) -> String {
        let differs = |c: char| matches!(c, '%' | '+') || (c.is_ascii_control() && !matches!(c, '\n' | '\t'));
        if text.contains(differs) { self.text(text) } else { text }
    }

    /// What the answer says about it.
    pub(in crate::s3) fn told(self) -> Option<EncodingType> {
        match self {
            Encoding::Plain => None,
            Encoding::Url => Some(EncodingType::from_static(EncodingType::URL)),
        }
    }
}

fn encoded(text: &str) -> String {
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

    #[test]
    fn names_are_written_so_that_any_decoder_reads_them() {
        let url = Encoding::of(Some(&EncodingType::from_static("url"))).unwrap();
        for (name, written) in [
            ("foo+1/bar", "foo%2B1/bar"),
            ("quux ab/", "quux%20ab/"),
            ("ü\u{1}", "%C3%BC%01"),
            ("100%", "100%25"),
            ("a-b_c.d~e*", "a-b_c.d~e*"),
        ] {
            assert_eq!(url.text(name.to_owned()), written);
            assert_eq!(Encoding::Plain.text(name.to_owned()), name);
        }
        assert_eq!(url.gentle("ü \n".to_owned()), "ü \n");
        assert_eq!(url.gentle("a+b".to_owned()), "a%2Bb");
        let refused = Encoding::of(Some(&EncodingType::from_static("base64"))).unwrap_err();
        assert_eq!(refused.code().as_str(), "InvalidArgument");
    }
}
