//! The rules of buckets for browsers. [`crate::s3::ingress::browsers`] applies them.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::cors::{BadCorsRules, CorsRule, check_rules};
use tarn_store::bucket_settings::SettingKind;

use crate::Objects;
use crate::s3::shared::caller;

pub(in crate::s3) async fn delete_bucket_cors(
    objects: &Objects,
    request: S3Request<DeleteBucketCorsInput>,
) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
    let org = caller::organization(&request)?;
    objects.set_setting::<()>(&org, &request.input.bucket, SettingKind::Cors, None).await?;
    Ok(S3Response::new(DeleteBucketCorsOutput::default()))
}

pub(in crate::s3) async fn get_bucket_cors(
    objects: &Objects,
    request: S3Request<GetBucketCorsInput>,
) -> S3Result<S3Response<GetBucketCorsOutput>> {
    let org = caller::organization(&request)?;
    let rules: Option<Vec<CorsRule>> = objects.setting(&org, &request.input.bucket, SettingKind::Cors).await?;
    let rules = rules.ok_or_else(|| s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))?;
    Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(rules.into_iter().map(written).collect()) }))
}

pub(in crate::s3) async fn put_bucket_cors(
    objects: &Objects,
    request: S3Request<PutBucketCorsInput>,
) -> S3Result<S3Response<PutBucketCorsOutput>> {
    let org = caller::organization(&request)?;
    let rules = request.input.cors_configuration.cors_rules.into_iter().map(read).collect::<S3Result<Vec<_>>>()?;
    check_rules(&rules).map_err(|error| match error {
        BadCorsRules::Amount | BadCorsRules::Empty => s3_error!(MalformedXML, "The rules are not valid: {error}."),
        BadCorsRules::Method(ref method) => {
            s3_error!(InvalidRequest, "Found unsupported HTTP method in CORS config. Unsupported method is {method}")
        }
        BadCorsRules::Wildcards(_) | BadCorsRules::Header(_) => {
            s3_error!(InvalidRequest, "The rules are not valid: {error}.")
        }
    })?;
    objects.set_setting(&org, &request.input.bucket, SettingKind::Cors, Some(rules)).await?;
    Ok(S3Response::new(PutBucketCorsOutput::default()))
}

fn read(rule: CORSRule) -> S3Result<CorsRule> {
    let max_age = rule.max_age_seconds.map(u32::try_from).transpose();
    Ok(CorsRule {
        id: rule.id,
        origins: rule.allowed_origins,
        methods: rule.allowed_methods,
        headers: rule.allowed_headers.unwrap_or_default(),
        exposed: rule.expose_headers.unwrap_or_default(),
        max_age: max_age.map_err(|_| s3_error!(MalformedXML, "MaxAgeSeconds cannot be negative."))?,
    })
}

fn written(rule: CorsRule) -> CORSRule {
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    CORSRule {
        allowed_headers: some(rule.headers),
        allowed_methods: rule.methods,
        allowed_origins: rule.origins,
        expose_headers: some(rule.exposed),
        id: rule.id,
        max_age_seconds: rule.max_age.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
    }
}
