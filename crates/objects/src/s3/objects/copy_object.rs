//! CopyObject.

use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopySource, ETag, ETagCondition, MetadataDirective,
    TaggingDirective,
};
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use tarn_model::ids::OrgId;
use tarn_model::objects::{Algorithm, Checksum, Details, MAX_PUT_BYTES, Object, Scope};

use crate::Objects;
use crate::files::Sums;
use crate::find::VersionSelector;
use crate::put::{Condition, ObjectLocation, Replaced, Stored};
use crate::s3::shared::conditions::Conditions;
use crate::s3::shared::headers::{ObjectHeaders, take_object_headers};
use crate::s3::shared::{caller, checksums, conditions, headers, times, version_ids};
use crate::s3::tagging::tags;

/// How often the source is looked up when it is replaced before it can be copied.
const MAX_TRIES: usize = 10;

/// The source of a copy.
pub(in crate::s3) struct SourceObject {
    pub(in crate::s3) bucket: String,
    pub(in crate::s3) key: String,
    pub(in crate::s3) selector: VersionSelector,
}

/// The options of a copy.
struct CopyOptions {
    /// New headers, unless those of the source are copied.
    own: Option<Details>,
    /// New tags, unless those of the source are copied.
    tags: Option<Vec<(String, String)>>,
    /// The redirect location of the copy, which is never copied.
    redirect: Option<String>,
    checksum: Option<Algorithm>,
    condition: Condition,
}

pub(in crate::s3) async fn copy_object(
    objects: &Objects,
    mut request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let location = caller::object_location(&request, &request.input.bucket, &request.input.key)?;
    let source = parse_copy_source(&request.input.copy_source)?;
    let condition = conditions::put_condition(
        etag_condition(&request, &http::header::IF_MATCH)?.as_ref(),
        etag_condition(&request, &http::header::IF_NONE_MATCH)?.as_ref(),
    )?;
    let options = copy_options(&mut request.input, condition)?;
    let to_itself =
        source.bucket == location.bucket && source.key == location.key && source.selector == VersionSelector::Current;
    if to_itself
        && options.own.is_none()
        && options.tags.is_none()
        && options.redirect.is_none()
        && options.checksum.is_none()
    {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's \
             metadata, storage class, website redirect location or encryption attributes."
        ));
    }
    let mut tries = 0;
    loop {
        tries += 1;
        let from = find_source(objects, &location.org, &source, &request.input).await?;
        match copy_with_checksum(objects, &from, &location, &options).await {
            Err(error) if *error.code() == S3ErrorCode::NoSuchVersion && tries < MAX_TRIES => {}
            copied => return Ok(S3Response::new(copy_output(&from, &source.selector, copied?))),
        }
    }
}

/// Parses the source that a call names.
pub(in crate::s3) fn parse_copy_source(source: &CopySource) -> S3Result<SourceObject> {
    let CopySource::Bucket { bucket, key, version_id } = source else {
        return Err(s3_error!(NotImplemented, "There are no access points. Name the bucket."));
    };
    let selector = version_ids::parse_selector(version_id.as_deref())?;
    Ok(SourceObject { bucket: bucket.to_string(), key: key.to_string(), selector })
}

async fn find_source(
    objects: &Objects,
    org: &OrgId,
    source: &SourceObject,
    input: &CopyObjectInput,
) -> S3Result<Object> {
    let from = objects.find(org, &source.bucket, &source.key, &source.selector).await?;
    let conditions = Conditions {
        if_match: input.copy_source_if_match.as_ref(),
        if_none_match: input.copy_source_if_none_match.as_ref(),
        if_modified_since: input.copy_source_if_modified_since.as_ref(),
        if_unmodified_since: input.copy_source_if_unmodified_since.as_ref(),
    };
    conditions.check_copy(&from)?;
    if from.size > MAX_PUT_BYTES {
        Err(s3_error!(
            InvalidRequest,
            "The specified copy source is larger than the maximum allowable size for a copy source: {MAX_PUT_BYTES}. Copy \
             it in parts."
        ))
    } else {
        Ok(from)
    }
}

/// Parses a condition on the destination, which s3s does not parse for copies.
fn etag_condition<T>(request: &S3Request<T>, name: &http::HeaderName) -> S3Result<Option<ETagCondition>> {
    let value = request.headers.get(name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
    value.transpose().map_err(|_| s3_error!(InvalidArgument, "The header {name} is not an ETag or *."))
}

fn copy_options(input: &mut CopyObjectInput, condition: Condition) -> S3Result<CopyOptions> {
    let own_headers = match input.metadata_directive.as_ref().map(MetadataDirective::as_str) {
        None | Some(MetadataDirective::COPY) => false,
        Some(MetadataDirective::REPLACE) => true,
        Some(_) => return Err(s3_error!(InvalidArgument, "Unknown metadata directive: use COPY or REPLACE.")),
    };
    let own_tags = match input.tagging_directive.as_ref().map(TaggingDirective::as_str) {
        None | Some(TaggingDirective::COPY) => false,
        Some(TaggingDirective::REPLACE) => true,
        Some(_) => return Err(s3_error!(InvalidArgument, "Unknown tagging directive: use COPY or REPLACE.")),
    };
    let algorithm = input.checksum_algorithm.as_ref().map(|algorithm| checksums::parse_algorithm(algorithm.as_str()));
    let checksum = algorithm.transpose()?;
    let mut headers: ObjectHeaders = take_object_headers!(input);
    let tags = own_tags.then(|| tags::tags_from_header(headers.tagging.as_deref().unwrap_or_default())).transpose()?;
    headers.tagging = None;
    let redirect = headers.website_redirect_location.clone();
    headers.reject_unsupported_headers()?;
    let own = own_headers.then(|| headers.into_details()).transpose()?;
    Ok(CopyOptions { own, tags, redirect, checksum, condition })
}

async fn copy_with_checksum(
    objects: &Objects,
    from: &Object,
    location: &ObjectLocation,
    options: &CopyOptions,
) -> S3Result<(Stored, Option<Checksum>)> {
    let mut details = options.own.clone().unwrap_or_else(|| inherited_details(from, options.redirect.as_deref()));
    headers::check_stored_bytes(&details)?;
    details.tags = options.tags.clone().unwrap_or_else(|| from.details.tags.clone());
    let known = from.details.checksum.clone();
    let missing = options.checksum.filter(|wanted| known.as_ref().is_none_or(|sum| sum.algorithm != *wanted));
    let Some(algorithm) = missing else {
        details.checksum = known.clone();
        let stored = objects.copy(from, location, details, options.condition.clone()).await?;
        return Ok((stored, known));
    };
    objects.check_room(location, &Replaced::Object, Some(from.size)).await?;
    let received = objects.receive_again(from, 0..from.size, Sums::with(Some(algorithm)), false).await?;
    let value = checksums::received_checksum(&received, algorithm);
    let checksum = value.map(|value| Checksum { algorithm, scope: Scope::Full, value });
    details.checksum = checksum.clone();
    let stored = objects.put(location, received, details, options.condition.clone()).await?;
    Ok((stored, checksum))
}

/// Returns the details that a copy takes over from its source.
fn inherited_details(from: &Object, redirect: Option<&str>) -> Details {
    const REDIRECT: &str = "x-amz-website-redirect-location";
    let mut details = from.details.clone();
    details.headers.retain(|(name, _)| name != REDIRECT);
    details.headers.extend(redirect.map(|redirect| (REDIRECT.to_owned(), redirect.to_owned())));
    details
}

fn copy_output(
    from: &Object,
    selector: &VersionSelector,
    (stored, checksum): (Stored, Option<Checksum>),
) -> CopyObjectOutput {
    let mut result = CopyObjectResult {
        e_tag: Some(ETag::Strong(stored.etag)),
        last_modified: Some(times::timestamp(stored.modified)),
        ..CopyObjectResult::default()
    };
    if let Some(Checksum { algorithm, scope, value }) = checksum {
        checksums::set_checksum!(result, algorithm, value);
        result.checksum_type = Some(checksums::scope_name(scope));
    }
    CopyObjectOutput {
        copy_object_result: Some(result),
        copy_source_version_id: version_ids::found_version(from, selector),
        version_id: version_ids::stored_version(&stored.version),
        ..CopyObjectOutput::default()
    }
}
