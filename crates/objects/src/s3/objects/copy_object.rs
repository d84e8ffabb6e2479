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
use crate::find::Which;
use crate::put::{Condition, Place, Replaced, Stored};
use crate::s3::shared::conditions::Conditions;
use crate::s3::shared::headers::{Given, given};
use crate::s3::shared::{caller, checksums, conditions, headers, times, version_ids};
use crate::s3::tagging::tags;

/// How often an object is looked for again that was replaced before it could be copied.
const TRIES: usize = 10;

/// From where a copy is made.
pub(in crate::s3) struct Source {
    pub(in crate::s3) bucket: String,
    pub(in crate::s3) key: String,
    pub(in crate::s3) which: Which,
}

/// What a copy is to be.
struct Wanted {
    /// Its own headers, unless it gets those of the original.
    own: Option<Details>,
    /// Its own tags, unless it gets those of the original.
    tags: Option<Vec<(String, String)>>,
    /// Where a website sends those who ask for it; this is never copied.
    redirect: Option<String>,
    checksum: Option<Algorithm>,
    condition: Condition,
}

pub(in crate::s3) async fn copy_object(
    objects: &Objects,
    mut request: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let place = caller::place(&request, &request.input.bucket, &request.input.key)?;
    let source = source(&request.input.copy_source)?;
    let condition = conditions::for_put(
        etag_condition(&request, &http::header::IF_MATCH)?.as_ref(),
        etag_condition(&request, &http::header::IF_NONE_MATCH)?.as_ref(),
    )?;
    let wanted = wanted(&mut request.input, condition)?;
    let to_itself = source.bucket == place.bucket && source.key == place.key && source.which == Which::Current;
    if to_itself
        && wanted.own.is_none()
        && wanted.tags.is_none()
        && wanted.redirect.is_none()
        && wanted.checksum.is_none()
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
        let from = find(objects, &place.org, &source, &request.input).await?;
        match copy(objects, &from, &place, &wanted).await {
            Err(error) if *error.code() == S3ErrorCode::NoSuchVersion && tries < TRIES => {}
            copied => return Ok(S3Response::new(told(&from, &source.which, copied?))),
        }
    }
}

/// The source that a call names.
pub(in crate::s3) fn source(source: &CopySource) -> S3Result<Source> {
    let CopySource::Bucket { bucket, key, version_id } = source else {
        return Err(s3_error!(NotImplemented, "There are no access points. Name the bucket."));
    };
    let which = version_ids::which(version_id.as_deref())?;
    Ok(Source { bucket: bucket.to_string(), key: key.to_string(), which })
}

async fn find(objects: &Objects, org: &OrgId, source: &Source, input: &CopyObjectInput) -> S3Result<Object> {
    let from = objects.find(org, &source.bucket, &source.key, &source.which).await?;
    let conditions = Conditions {
        if_match: input.copy_source_if_match.as_ref(),
        if_none_match: input.copy_source_if_none_match.as_ref(),
        if_modified_since: input.copy_source_if_modified_since.as_ref(),
        if_unmodified_since: input.copy_source_if_unmodified_since.as_ref(),
    };
    conditions.check_copy(&from)?;
    match from.size > MAX_PUT_BYTES {
        true => Err(s3_error!(
            InvalidRequest,
            "The specified copy source is larger than the maximum allowable size for a copy source: {MAX_PUT_BYTES}. Copy \
             it in parts."
        )),
        false => Ok(from),
    }
}

/// A condition on what is at the destination, which s3s does not read for copies.
fn etag_condition<T>(request: &S3Request<T>, name: &http::HeaderName) -> S3Result<Option<ETagCondition>> {
    let value = request.headers.get(name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
    value.transpose().map_err(|_| s3_error!(InvalidArgument, "The header {name} is not an ETag or *."))
}

fn wanted(input: &mut CopyObjectInput, condition: Condition) -> S3Result<Wanted> {
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
    let algorithm = input.checksum_algorithm.as_ref().map(|algorithm| checksums::parse(algorithm.as_str()));
    let checksum = algorithm.transpose()?;
    let mut given: Given = given!(input);
    let tags = own_tags.then(|| tags::from_header(given.tagging.as_deref().unwrap_or_default())).transpose()?;
    given.tagging = None;
    let redirect = given.website_redirect_location.clone();
    given.refuse_what_is_not_done()?;
    let own = own_headers.then(|| given.into_details()).transpose()?;
    Ok(Wanted { own, tags, redirect, checksum, condition })
}

async fn copy(
    objects: &Objects,
    from: &Object,
    place: &Place,
    wanted: &Wanted,
) -> S3Result<(Stored, Option<Checksum>)> {
    let mut details = wanted.own.clone().unwrap_or_else(|| copied(from, wanted.redirect.as_deref()));
    headers::check_size(&details)?;
    details.tags = wanted.tags.clone().unwrap_or_else(|| from.details.tags.clone());
    let known = from.details.checksum.clone();
    let missing = wanted.checksum.filter(|wanted| known.as_ref().is_none_or(|sum| sum.algorithm != *wanted));
    let Some(algorithm) = missing else {
        details.checksum = known.clone();
        let stored = objects.copy(from, place, details, wanted.condition.clone()).await?;
        return Ok((stored, known));
    };
    objects.make_room(place, &Replaced::Object, Some(from.size)).await?;
    let received = objects.take_again(from, 0..from.size, Sums::with(Some(algorithm)), false).await?;
    let value = checksums::of(&received, algorithm);
    let checksum = value.map(|value| Checksum { algorithm, scope: Scope::Full, value });
    details.checksum = checksum.clone();
    let stored = objects.put(place, received, details, wanted.condition.clone()).await?;
    Ok((stored, checksum))
}

/// What a copy has from its original.
fn copied(from: &Object, redirect: Option<&str>) -> Details {
    const REDIRECT: &str = "x-amz-website-redirect-location";
    let mut details = from.details.clone();
    details.headers.retain(|(name, _)| name != REDIRECT);
    details.headers.extend(redirect.map(|redirect| (REDIRECT.to_owned(), redirect.to_owned())));
    details
}

fn told(from: &Object, which: &Which, (stored, checksum): (Stored, Option<Checksum>)) -> CopyObjectOutput {
    let mut result = CopyObjectResult {
        e_tag: Some(ETag::Strong(stored.etag)),
        last_modified: Some(times::timestamp(stored.modified)),
        ..CopyObjectResult::default()
    };
    if let Some(Checksum { algorithm, scope, value }) = checksum {
        checksums::tell!(result, algorithm, value);
        result.checksum_type = Some(checksums::scope_name(scope));
    }
    CopyObjectOutput {
        copy_object_result: Some(result),
        copy_source_version_id: version_ids::of(from, which),
        version_id: version_ids::shown(stored.version.as_ref()),
        ..CopyObjectOutput::default()
    }
}
