//! Calls of scripts in browsers: the preflights that browsers send before them, and the headers that let a script read
//! a response. The rules of the bucket decide.
//!
//! A preflight is not signed. Those of signed URLs name an access key, and so the organization whose bucket is meant.
//! Without it no organization is known, and whether a bucket exists is the business of its owner: every such preflight
//! gets the same response. It permits only that the browser sends the call, which is then signed, and whose response
//! the script reads only by the rules of the bucket.

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use s3s::{Body, HttpResponse, S3Error, S3Result};
use tarn_model::cors::{CorsRule, MAX_ASKED_HEADERS, find_rule};
use tarn_model::ids::OrgId;
use tarn_store::bucket_settings::SettingKind;

use super::domains::Domains;
use super::signing;
use crate::s3::shared::errors::custom;
use crate::{Error, Objects, Result};

/// How long a browser may remember the response to a preflight without a key, in seconds. It is always the same.
const UNKEYED_MAX_AGE: u32 = 3600;

/// A call of a script: its origin, its method, and the bucket that it names.
pub(in crate::s3) struct ScriptCall {
    origin: String,
    method: String,
    bucket: String,
}

impl ScriptCall {
    /// Returns the call of a script; `None` for other calls.
    pub(in crate::s3) fn of(parts: &Parts, domains: &Arc<Domains>) -> Option<Self> {
        let origin = text(&parts.headers, &ORIGIN)?;
        let host = text(&parts.headers, &HOST).or_else(|| parts.uri.authority().map(ToString::to_string));
        let bucket = host.and_then(|host| domains.bucket_of_host(&host)).or_else(|| {
            let first = parts.uri.path().split('/').nth(1)?;
            Some(first.to_owned())
        })?;
        Some(ScriptCall { origin, method: parts.method.as_str().to_owned(), bucket })
    }

    /// Adds the headers to a response of the organization's bucket that let the script read it, if a rule allows it.
    pub(in crate::s3) async fn admit(&self, objects: &Objects, org: &OrgId, response: &mut HttpResponse) {
        let rules: Vec<CorsRule> = match objects.setting(org, &self.bucket, SettingKind::Cors).await {
            Ok(Some(rules)) => rules,
            // The call itself has reported what is wrong.
            Ok(None) | Err(_) => return,
        };
        if let Some(rule) = find_rule(&rules, &self.origin, &self.method, &[]) {
            response.headers_mut().extend(self.headers(rule));
        }
    }

    fn headers(&self, rule: &CorsRule) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(name, value);
            }
        };
        if rule.allows_every_origin() {
            add(ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            add(ACCESS_CONTROL_ALLOW_ORIGIN, &self.origin);
            add(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
        }
        add(ACCESS_CONTROL_ALLOW_METHODS, &rule.methods.join(", "));
        if !rule.exposed.is_empty() {
            add(ACCESS_CONTROL_EXPOSE_HEADERS, &rule.exposed.join(", "));
        }
        if let Some(seconds) = rule.max_age {
            add(ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
        }
        add(VARY, "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
        headers
    }
}

/// Responds to a preflight: may a script of this origin send such a call?
pub(in crate::s3) async fn answer_preflight(
    objects: &Objects,
    domains: &Arc<Domains>,
    parts: &Parts,
) -> S3Result<HttpResponse> {
    let method = text(&parts.headers, &ACCESS_CONTROL_REQUEST_METHOD);
    let (Some(call), Some(method)) = (ScriptCall::of(parts, domains), method) else {
        let message = "Insufficient information. Origin and Access-Control-Request-Method are needed.";
        return Err(custom("BadRequest", StatusCode::BAD_REQUEST, message));
    };
    let call = ScriptCall { method, ..call };
    let asked = text(&parts.headers, &ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
    let names: Vec<String> =
        asked.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.len() > MAX_ASKED_HEADERS {
        let message = format!("A preflight names at most {MAX_ASKED_HEADERS} headers.");
        return Err(custom("BadRequest", StatusCode::BAD_REQUEST, &message));
    }
    let headers = match signing::key_of_url(parts.uri.query().unwrap_or_default()) {
        Some(key) => {
            let rules = rules_of_key(objects, &key, &call.bucket).await?;
            call.headers(find_rule(&rules, &call.origin, &call.method, &names).ok_or_else(not_allowed)?)
        }
        None => call.headers(&CorsRule {
            origins: vec![call.origin.clone()],
            methods: vec![call.method.clone()],
            max_age: Some(UNKEYED_MAX_AGE),
            ..CorsRule::default()
        }),
    };
    let mut response = HttpResponse::new(Body::empty());
    *response.headers_mut() = headers;
    if let Ok(names) = HeaderValue::from_str(&names.join(", "))
        && !names.is_empty()
    {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_HEADERS, names);
    }
    Ok(response)
}

/// Returns the rules of the bucket that a key can reach; none where it reaches no such bucket.
async fn rules_of_key(objects: &Objects, key: &str, bucket: &str) -> Result<Vec<CorsRule>> {
    let Some(holder) = objects.holder_of(key).await? else {
        return Ok(Vec::new());
    };
    match objects.setting(&holder.org, bucket, SettingKind::Cors).await {
        Ok(rules) => Ok(rules.unwrap_or_default()),
        Err(Error::NoSuchBucket) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn not_allowed() -> S3Error {
    let message = "CORSResponse: no rule of the bucket allows this origin, method and headers. See PutBucketCors.";
    custom("AccessForbidden", StatusCode::FORBIDDEN, message)
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}
