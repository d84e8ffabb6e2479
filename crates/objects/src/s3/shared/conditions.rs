//! Conditional headers, with the precedence that S3 gives them.

use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3Result, s3_error};
use tarn_model::objects::Object;

use crate::put::Condition;
use crate::s3::shared::times;

/// The conditions of a call that reads an object.
pub(in crate::s3) struct Conditions<'a> {
    pub(in crate::s3) if_match: Option<&'a ETagCondition>,
    pub(in crate::s3) if_none_match: Option<&'a ETagCondition>,
    pub(in crate::s3) if_modified_since: Option<&'a Timestamp>,
    pub(in crate::s3) if_unmodified_since: Option<&'a Timestamp>,
}

/// Why a condition of a read does not hold.
#[derive(Debug, PartialEq, Eq)]
enum UnmetCondition {
    /// The object differs: 412.
    Failed,
    /// The client has the object already: 304.
    NotModified,
}

impl Conditions<'_> {
    /// Checks the conditions of a GET or HEAD: 412 or 304.
    pub(in crate::s3) fn check_read(&self, object: &Object) -> S3Result<()> {
        match self.find_unmet(object) {
            None => Ok(()),
            Some(UnmetCondition::Failed) => Err(precondition_failed()),
            Some(UnmetCondition::NotModified) => Err(not_modified(object)),
        }
    }

    /// Checks the conditions on the source of a copy, where both cases are a 412.
    pub(in crate::s3) fn check_copy(&self, object: &Object) -> S3Result<()> {
        match self.find_unmet(object) {
            None => Ok(()),
            Some(_) => Err(precondition_failed()),
        }
    }

    /// ETags are more exact than times: where an ETag is given, the time beside it is ignored.
    fn find_unmet(&self, object: &Object) -> Option<UnmetCondition> {
        match (self.if_match, self.if_unmodified_since) {
            (Some(wanted), _) if !matches_etag(wanted, &object.etag) => return Some(UnmetCondition::Failed),
            (None, Some(time)) if times::whole_seconds(object.modified) > *time => return Some(UnmetCondition::Failed),
            _ => {}
        }
        match (self.if_none_match, self.if_modified_since) {
            (Some(known), _) if matches_etag(known, &object.etag) => Some(UnmetCondition::NotModified),
            (None, Some(time)) if times::whole_seconds(object.modified) <= *time => Some(UnmetCondition::NotModified),
            _ => None,
        }
    }
}

/// Returns whether a condition matches this ETag. s3s passes a list as one ETag, with the quotes between its members.
fn matches_etag(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(listed) => {
            listed.value().split(',').any(|one| one.trim().trim_start_matches("W/").trim_matches('"') == etag)
        }
    }
}

fn precondition_failed() -> S3Error {
    crate::Error::PreconditionFailed.into()
}

/// A 304 has no body, but the headers that the full response would have.
fn not_modified(object: &Object) -> S3Error {
    let mut error = crate::s3::shared::errors::custom("NotModified", http::StatusCode::NOT_MODIFIED, "Not Modified");
    let mut headers = http::HeaderMap::new();
    if let Ok(etag) = format!("\"{}\"", object.etag).parse() {
        headers.insert(http::header::ETAG, etag);
    }
    if let Some(modified) = times::http_date(object.modified) {
        headers.insert(http::header::LAST_MODIFIED, modified);
    }
    error.set_headers(headers);
    error
}

/// Parses the condition of a put, a copy or the completion of an upload.
pub(in crate::s3) fn put_condition(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<Condition> {
    let if_absent = match if_none_match {
        None => false,
        Some(ETagCondition::Any) => true,
        Some(ETagCondition::ETag(_)) => {
            return Err(s3_error!(NotImplemented, "If-None-Match of a write accepts only *."));
        }
    };
    if if_absent && if_match.is_some() {
        return Err(s3_error!(NotImplemented, "Give If-Match or If-None-Match, not both."));
    }
    let if_match = if_match.map(|condition| match condition {
        ETagCondition::Any => "*".to_owned(),
        ETagCondition::ETag(etag) => etag.value().to_owned(),
    });
    Ok(Condition { if_match, if_absent })
}
