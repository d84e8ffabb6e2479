//! ListObjectVersions.
//!
//! The marker within a key names a version and its number among those of the key, so that a list continues correctly
//! even when that version was deleted meanwhile.

use s3s::dto::{
    DeleteMarkerEntry, ETag, ListObjectVersionsInput, ListObjectVersionsOutput, ObjectVersion,
    ObjectVersionStorageClass, Owner,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::Objects;
use crate::list::{Entry, Page};
use crate::list_versions::{After, ListedVersion};
use crate::s3::listing;
use crate::s3::listing::encoding::Encoding;
use crate::s3::shared::{caller, times, version_ids};

pub(in crate::s3) async fn list_object_versions(
    objects: &Objects,
    request: S3Request<ListObjectVersionsInput>,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    let org = caller::organization(&request)?;
    let input = request.input;
    let encoding = Encoding::from_request(input.encoding_type.as_ref())?;
    let limit = listing::page_limit(input.max_keys, "max-keys")?;
    let (prefix, delimiter, key_marker) = (&input.prefix, &input.delimiter, &input.key_marker);
    let query = listing::list_query(prefix.as_deref(), delimiter.as_deref(), key_marker.as_deref(), limit)?;
    let within = input.version_id_marker.as_deref().filter(|marker| !marker.is_empty());
    if within.is_some() && query.after.is_none() {
        return Err(s3_error!(InvalidArgument, "A version-id marker cannot be specified without a key marker."));
    }
    let within = within.map(parse_version_marker).transpose()?;
    let page = objects.list_versions(&org, &input.bucket, &query, within).await?;
    let (next_key, next_version) = next_markers(&page);
    let (is_truncated, owner) = (page.more, listing::owner_of(&org));
    let (found, prefixes) = listing::split_entries(page.entries, encoding);
    let (markers, kept): (Vec<_>, Vec<_>) = found.into_iter().partition(|version| version.listed.object.is_none());
    Ok(S3Response::new(ListObjectVersionsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.encode_text(query.prefix)),
        delimiter: query.delimiter.map(|delimiter| encoding.encode_text(delimiter)),
        key_marker: Some(encoding.encode_text(input.key_marker.unwrap_or_default())),
        version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
        max_keys: Some(limit as i32),
        is_truncated: Some(is_truncated),
        next_key_marker: next_key.map(|key| encoding.encode_text(key)),
        next_version_id_marker: next_version,
        versions: Some(kept.into_iter().map(|version| version_entry(version, &owner, encoding)).collect()),
        delete_markers: Some(markers.into_iter().map(|version| marker_entry(version, &owner, encoding)).collect()),
        common_prefixes: Some(prefixes),
        encoding_type: encoding.response_type(),
        request_charged: None,
    }))
}

/// Returns where the next page starts, if there is one.
fn next_markers(page: &Page<ListedVersion>) -> (Option<String>, Option<String>) {
    match page.entries.last().filter(|_| page.more) {
        None => (None, None),
        Some(Entry::Prefix(prefix)) => (Some(prefix.clone()), None),
        Some(Entry::Item(ListedVersion { listed, .. })) => {
            let marker = format!("{}~{}", version_ids::version_text(listed.version.as_ref()), listed.sequence);
            (Some(listed.key.clone()), Some(marker))
        }
    }
}

/// Parses where to continue within a key. The id of a version alone is accepted, too.
fn parse_version_marker(marker: &str) -> S3Result<After> {
    match marker.split_once('~') {
        None => Ok(After::Version(version_ids::parse_version_id(marker)?)),
        Some((_, sequence)) => match sequence.parse() {
            Ok(sequence) => Ok(After::Sequence(sequence)),
            Err(_) => Err(s3_error!(InvalidArgument, "Invalid version id specified")),
        },
    }
}

fn version_entry(version: ListedVersion, owner: &Owner, encoding: Encoding) -> ObjectVersion {
    let ListedVersion { listed, latest } = version;
    let (size, etag) = listed.object.unzip();
    ObjectVersion {
        e_tag: etag.map(ETag::Strong),
        is_latest: Some(latest),
        key: Some(encoding.encode_text(listed.key)),
        last_modified: Some(times::timestamp(listed.modified)),
        owner: Some(owner.clone()),
        size: size.map(|size| size as i64),
        storage_class: Some(ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD)),
        version_id: Some(version_ids::version_text(listed.version.as_ref())),
        ..Default::default()
    }
}

fn marker_entry(version: ListedVersion, owner: &Owner, encoding: Encoding) -> DeleteMarkerEntry {
    let ListedVersion { listed, latest } = version;
    DeleteMarkerEntry {
        is_latest: Some(latest),
        key: Some(encoding.encode_text(listed.key)),
        last_modified: Some(times::timestamp(listed.modified)),
        owner: Some(owner.clone()),
        version_id: Some(version_ids::version_text(listed.version.as_ref())),
    }
}
