//! Conditional headers, with the precedence that S3 gives them.

use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3Result, s3_error};
use tarn_model::objects::Object;

use crate::put::Condition;
use crate::s3::shared::times;

/// What a call asks of the object that it reads.
pub(in crate::s3) struct Conditions<'a> {
    pub(in crate::s3) if_match: Option<&'a ETagCondition>,
    pub(in crate::s3) if_none_match: Option<&'a ETagCondition>,
    pub(in crate::s3) if_modified_since: Option<&'a Timestamp>,
    pub(in crate::s3) if_unmodified_since: Option<&'a Timestamp>,
}

/// What keeps a call from reading an object.
#[derive(Debug, PartialEq, Eq)]
enum Unmet {
    /// It is another one: 412.
    Failed,
    /// The client has it already: 304.
    NotModified,
}

impl Conditions<'_> {
    /// For a GET or HEAD: 412 or 304.
    pub(in crate::s3) fn check_read(&self, object: &Object) -> S3Result<()> {
        match self.unmet(object) {
            None => Ok(()),
            Some(Unmet::Failed) => Err(failed()),
            Some(Unmet::NotModified) => Err(not_modified(object)),
        }
    }

    /// For the source of a copy, where both are a 412.
    pub(in crate::s3) fn check_copy(&self, object: &Object) -> S3Result<()> {
        match self.unmet(object) {
            None => Ok(()),
            Some(_) => Err(failed()),
        }
    }

    /// Names of ETags are more exact than times: where one is given, the time beside it says nothing.
    fn unmet(&self, object: &Object) -> Option<Unmet> {
        match (self.if_match, self.if_unmodified_since) {
            (Some(wanted), _) if !names(wanted, &object.etag) => return Some(Unmet::Failed),
            (None, Some(time)) if times::whole(object.modified) > *time => return Some(Unmet::Failed),
            _ => {}
        }
        match (self.if_none_match, self.if_modified_since) {
            (Some(known), _) if names(known, &object.etag) => Some(Unmet::NotModified),
            (None, Some(time)) if times::whole(object.modified) <= *time => Some(Unmet::NotModified),
            _ => None,
        }
    }
}

/// Whether a condition names this ETag. s3s hands a list on as one ETag, with the quotes between its members.
fn names(condition: &ETagCondition, etag: &str) -> bool {
    match condition {
        ETagCondition::Any => true,
        ETagCondition::ETag(listed) => {
            listed.value().split(',').any(|one| one.trim().trim_start_matches("W/").trim_matches('"') == etag)
        }
    }
}

fn failed() -> S3Error {
    crate::Error::PreconditionFailed.into()
}

/// A 304 has no body, and tells what would have been told.
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

/// What a put, a copy or the completion of an upload asks of what is there.
pub(in crate::s3) fn for_put(
    if_match: Option<&ETagCondition>,
    if_none_match: Option<&ETagCondition>,
) -> S3Result<Condition> {
    let if_absent = match if_none_match {
        None => false,
        Some(ETagCondition::Any) => true,
        Some(ETagCondition::ETag(_)) => {
            return Err(s3_error!(NotImplemented, "If-None-Match of a write takes only *."));
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
