//! Conditional headers, with the precedence that S3 gives them.

use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3Result, s3_error};
use tarn_model::objects::Object;

use crate::put::Condition;
use crate::s3::shared::errors::precondition_failed;
use crate::s3::shared::times;

const IF_MATCH: &str = "If-Match";
const IF_NONE_MATCH: &str = "If-None-Match";

/// The conditions of a call that reads an object.
pub(in crate::s3) struct Conditions<'a> {
    pub(in crate::s3) if_match: Option<&'a ETagCondition>,
    pub(in crate::s3) if_none_match: Option<&'a ETagCondition>,
    pub(in crate::s3) if_modified_since: Option<&'a Timestamp>,
    pub(in crate::s3) if_unmodified_since: Option<&'a Timestamp>,
}

/// Why a condition of a read does not hold.
#[derive(Debug, PartialEq, Eq)]
enum Unmet {
    /// The object differs from what this header says: 412.
    Failed(&'static str),
    /// The client has the object already, says this header: 304.
    NotModified(&'static str),
}

impl Conditions<'_> {
    /// Checks the conditions of a GET or HEAD: 412 or 304.
    pub(in crate::s3) fn check_read(&self, object: &Object) -> S3Result<()> {
        match self.find_unmet(object) {
            None => Ok(()),
            Some(Unmet::Failed(header)) => Err(precondition_failed(header)),
            Some(Unmet::NotModified(_)) => Err(not_modified(object)),
        }
    }

    /// Checks the conditions on the source of a copy, where both cases are a 412.
    pub(in crate::s3) fn check_copy(&self, object: &Object) -> S3Result<()> {
        match self.find_unmet(object) {
            None => Ok(()),
            Some(Unmet::Failed(IF_MATCH)) => Err(precondition_failed("x-amz-copy-source-If-Match")),
            Some(Unmet::NotModified(IF_NONE_MATCH)) => Err(precondition_failed("x-amz-copy-source-If-None-Match")),
            Some(Unmet::Failed(_)) => Err(precondition_failed("x-amz-copy-source-If-Unmodified-Since")),
            Some(Unmet::NotModified(_)) => Err(precondition_failed("x-amz-copy-source-If-Modified-Since")),
        }
    }

    /// ETags are more exact than times: where an ETag is given, the time beside it is ignored.
    fn find_unmet(&self, object: &Object) -> Option<Unmet> {
        let modified = times::whole_seconds(object.modified);
        match (self.if_match, self.if_unmodified_since) {
            (Some(wanted), _) if !matches_etag(wanted, &object.etag) => return Some(Unmet::Failed(IF_MATCH)),
            (None, Some(time)) if modified > *time => return Some(Unmet::Failed("If-Unmodified-Since")),
            _ => {}
        }
        match (self.if_none_match, self.if_modified_since) {
            (Some(known), _) if matches_etag(known, &object.etag) => Some(Unmet::NotModified(IF_NONE_MATCH)),
            (None, Some(time)) if modified <= *time => Some(Unmet::NotModified("If-Modified-Since")),
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
    Ok(Condition { if_match: if_match.map(wanted_etag), if_absent })
}

/// Returns the ETag that the object must have, or `*`.
pub(in crate::s3) fn wanted_etag(condition: &ETagCondition) -> String {
    match condition {
        ETagCondition::Any => "*".to_owned(),
        ETagCondition::ETag(etag) => etag.value().to_owned(),
    }
}
