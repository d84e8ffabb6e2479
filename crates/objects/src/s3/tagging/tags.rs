//! Tags of objects: parsed from a header or from XML, and checked.

use s3s::dto::{Tag, TagSet};
use s3s::{S3Error, S3Result, s3_error};

/// The maximum number of tags of an object, and of a bucket.
const MAX_TAGS: usize = 10;
const MAX_BUCKET_TAGS: usize = 50;

/// The maximum lengths of names and values, in characters.
const MAX_NAME: usize = 128;
const MAX_VALUE: usize = 256;

/// Parses the tags of the header `x-amz-tagging`, which has the syntax of a query.
pub(in crate::s3) fn tags_from_header(text: &str) -> S3Result<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((decode_query(name)?, decode_query(value)?))
    });
    let tags = pairs.collect::<S3Result<Vec<_>>>()?;
    check_tags(&tags, MAX_TAGS)?;
    Ok(tags)
}

/// Reads the tags of an object from a set in XML.
pub(in crate::s3) fn tags_from_set(set: TagSet) -> S3Result<Vec<(String, String)>> {
    read_set(set, MAX_TAGS)
}

/// Reads the tags of a bucket from a set in XML.
pub(in crate::s3) fn bucket_tags_from_set(set: TagSet) -> S3Result<Vec<(String, String)>> {
    read_set(set, MAX_BUCKET_TAGS)
}

fn read_set(set: TagSet, most: usize) -> S3Result<Vec<(String, String)>> {
    let pairs = set.into_iter().map(|tag| match (tag.key, tag.value) {
        (Some(name), value) => Ok((name, value.unwrap_or_default())),
        (None, _) => Err(s3_error!(MalformedXML, "A tag has a Key and a Value.")),
    });
    let tags = pairs.collect::<S3Result<Vec<_>>>()?;
    check_tags(&tags, most)?;
    Ok(tags)
}

/// Converts tags to a set.
pub(in crate::s3) fn tags_to_set(tags: Vec<(String, String)>) -> TagSet {
    tags.into_iter().map(|(name, value)| Tag { key: Some(name), value: Some(value) }).collect()
}

/// Checks the tags of an object or a bucket.
fn check_tags(tags: &[(String, String)], most: usize) -> S3Result<()> {
    if tags.len() > most {
        return Err(s3_error!(InvalidTag, "There are more than {most} tags."));
    }
    for (at, (name, value)) in tags.iter().enumerate() {
        if let Some(character) = name.chars().chain(value.chars()).find(|character| !is_allowed(*character)) {
            return Err(s3_error!(
                InvalidTag,
                "A tag you have provided is invalid: it contains {character:?}, and only letters, digits, spaces and \
                 + - = . _ : / @ are allowed"
            ));
        }
        if name.is_empty() || name.chars().count() > MAX_NAME {
            return Err(s3_error!(
                InvalidTag,
                "The TagKey you have provided is invalid: it has 1 to {MAX_NAME} characters"
            ));
        }
        if value.chars().count() > MAX_VALUE {
            return Err(s3_error!(
                InvalidTag,
                "The TagValue you have provided is invalid: it has at most {MAX_VALUE} characters"
            ));
        }
        if tags[..at].iter().any(|(other, _)| other == name) {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(())
}

/// Returns whether S3 allows the character in names and values of tags.
fn is_allowed(character: char) -> bool {
    let is_space = character.is_whitespace() && !character.is_control();
    character.is_alphanumeric() || is_space || "+-=._:/@".contains(character)
}

/// Decodes a query component.
fn decode_query(text: &str) -> S3Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits = others.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let byte =
                    digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(malformed_header)?;
                bytes.push(byte);
                rest = &others[2..];
            }
            other => bytes.push(*other),
        }
    }
    String::from_utf8(bytes).map_err(|_| malformed_header())
}

fn malformed_header() -> S3Error {
    s3_error!(
        InvalidArgument,
        "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name \
         duplicates."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: S3Result<Vec<(String, String)>>) -> String {
        result.unwrap_err().code().as_str().to_owned()
    }

    /// The tags of a header have the syntax of a query.
    #[test]
    fn header_tags_are_a_query() {
        let tags = tags_from_header("a=1&b+c=%C3%BC%2B%3D&empty=&bare").unwrap();
        let expected = [("a", "1"), ("b c", "ü+="), ("empty", ""), ("bare", "")];
        assert_eq!(tags, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(tags_from_header("").unwrap(), []);
        for bad in ["a=%", "a=%4", "a=%zz", "a=%ff", "a=%+1"] {
            assert_eq!(code(tags_from_header(bad)), "InvalidArgument", "{bad}");
        }
    }

    /// The number, length and uniqueness of tags are checked.
    #[test]
    fn tag_limits_are_checked() {
        let many = |count: usize| (0..count).map(|number| format!("k{number}=v")).collect::<Vec<_>>().join("&");
        assert_eq!(tags_from_header(&many(10)).unwrap().len(), 10);
        assert_eq!(code(tags_from_header(&many(11))), "InvalidTag");
        let (name, value) = ("ü".repeat(128), "ü".repeat(256));
        assert!(tags_from_header(&format!("{name}={value}")).is_ok());
        for bad in [format!("{name}x=1"), format!("a={value}x"), "a=1&a=2".to_owned(), "=1".to_owned()] {
            assert_eq!(code(tags_from_header(&bad)), "InvalidTag");
        }
    }

    /// Names and values have the characters that S3 allows.
    #[test]
    fn tag_characters_are_checked() {
        for good in ["a b", "ü日本", "+-=._:/@", "٣\u{a0}"] {
            let tags = vec![("k".to_owned(), good.to_owned()), (good.to_owned(), "v".to_owned())];
            assert_eq!(tags_from_set(tags_to_set(tags.clone())).unwrap(), tags);
        }
        for bad in ["!", "?", "*", "a&b", "a\tb", "a\nb", "\u{0}", "\u{1f600}", "\""] {
            for (name, value) in [("k", bad), (bad, "v")] {
                let set = tags_to_set(vec![(name.to_owned(), value.to_owned())]);
                assert_eq!(code(tags_from_set(set)), "InvalidTag", "{bad:?}");
            }
        }
    }

    /// A tag set is read as it was written.
    #[test]
    fn tag_set_round_trips() {
        let tags = vec![("a".to_owned(), "1".to_owned())];
        assert_eq!(tags_from_set(tags_to_set(tags.clone())).unwrap(), tags);
        assert_eq!(code(tags_from_set(vec![Tag { key: None, value: None }])), "MalformedXML");
    }
}
