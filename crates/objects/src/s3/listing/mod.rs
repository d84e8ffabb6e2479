//! The lists of objects and versions: one file per S3 operation. This file holds what all lists have in common: limits,
//! prefixes, delimiters and markers.

pub(in crate::s3) mod encoding;
pub(in crate::s3) mod list_object_versions;
pub(in crate::s3) mod list_objects;
pub(in crate::s3) mod list_objects_v2;

use s3s::dto::{CommonPrefix, CommonPrefixList, ETag, ObjectStorageClass, Owner};
use s3s::{S3Result, s3_error};
use tarn_model::ids::OrgId;
use tarn_model::objects::ListedObject;

use crate::list::{Entry, MAX_PAGE, Page, Query};
use crate::s3::listing::encoding::Encoding;
use crate::s3::shared::times;

/// Parses the number of entries that a call requests. A page has at most a thousand.
pub(in crate::s3) fn page_limit(requested: Option<i32>, name: &str) -> S3Result<u32> {
    match requested.map(u32::try_from) {
        None => Ok(MAX_PAGE),
        Some(Ok(limit)) => Ok(limit.min(MAX_PAGE)),
        Some(Err(_)) => {
            Err(s3_error!(InvalidArgument, "Argument {name} must be an integer between 0 and {}", i32::MAX))
        }
    }
}

/// Builds the query of a call. Empty texts count as absent.
pub(in crate::s3) fn list_query(
    prefix: Option<&str>,
    delimiter: Option<&str>,
    after: Option<&str>,
    limit: u32,
) -> S3Result<Query> {
    let owned = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    for (name, text) in [("prefix", prefix), ("delimiter", delimiter), ("marker", after)] {
        // No key contains NUL, and not every database accepts it.
        if text.is_some_and(|text| text.contains('\0')) {
            return Err(s3_error!(InvalidArgument, "Argument {name} must not contain NUL"));
        }
    }
    Ok(Query { prefix: owned(prefix).unwrap_or_default(), delimiter: owned(delimiter), after: owned(after), limit })
}

/// Returns the last key or prefix of a page.
pub(in crate::s3) fn last_key<'p, T>(page: &'p Page<T>, key: impl Fn(&'p T) -> &'p str) -> Option<&'p str> {
    page.entries.last().map(|entry| match entry {
        Entry::Item(item) => key(item),
        Entry::Prefix(prefix) => prefix,
    })
}

/// Splits the entries of a page into items and common prefixes.
pub(in crate::s3) fn split_entries<T>(entries: Vec<Entry<T>>, encoding: Encoding) -> (Vec<T>, CommonPrefixList) {
    let (mut items, mut prefixes) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::Item(item) => items.push(item),
            Entry::Prefix(prefix) => prefixes.push(CommonPrefix { prefix: Some(encoding.encode_text(prefix)) }),
        }
    }
    (items, prefixes)
}

/// Converts an object to its entry in a list.
pub(in crate::s3) fn object_entry(listed: ListedObject, owner: Option<Owner>, encoding: Encoding) -> s3s::dto::Object {
    let (size, etag) = listed.object.unzip();
    s3s::dto::Object {
        key: Some(encoding.encode_text(listed.key)),
        last_modified: Some(times::timestamp(listed.modified)),
        e_tag: etag.map(ETag::Strong),
        size: size.map(|size| size as i64),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        owner,
        ..Default::default()
    }
}

/// Returns the owner of all objects of an organization.
pub(in crate::s3) fn owner_of(org: &OrgId) -> Owner {
    Owner { id: Some(org.to_string()), display_name: Some(org.to_string()) }
}
