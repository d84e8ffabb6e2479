//! The rules of buckets for the life of objects. [`crate::lifecycle`] applies them.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result, s3_error};
use tarn_model::Time;
use tarn_model::object_rules::{BadObjectRules, Expiry, ObjectRule, OldVersions, check_rules};
use tarn_store::bucket_settings::SettingKind;

use crate::Objects;
use crate::s3::shared::{caller, times};
use crate::s3::tagging::tags;

pub(in crate::s3) async fn delete_bucket_lifecycle(
    objects: &Objects,
    request: S3Request<DeleteBucketLifecycleInput>,
) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
    objects.set_object_rules(&caller::organization(&request)?, &request.input.bucket, None).await?;
    Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
}

pub(in crate::s3) async fn get_bucket_lifecycle_configuration(
    objects: &Objects,
    request: S3Request<GetBucketLifecycleConfigurationInput>,
) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
    let org = caller::organization(&request)?;
    let rules: Option<Vec<ObjectRule>> = objects.setting(&org, &request.input.bucket, SettingKind::Lifecycle).await?;
    let rules =
        rules.ok_or_else(|| s3_error!(NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist"))?;
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
        rules: Some(rules.into_iter().map(written).collect()),
        ..Default::default()
    }))
}

pub(in crate::s3) async fn put_bucket_lifecycle_configuration(
    objects: &Objects,
    request: S3Request<PutBucketLifecycleConfigurationInput>,
) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
    let org = caller::organization(&request)?;
    let given = request.input.lifecycle_configuration.map(|configuration| configuration.rules).unwrap_or_default();
    let mut rules = given.into_iter().map(read).collect::<S3Result<Vec<_>>>()?;
    for (number, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.id.is_empty()) {
        rule.id = format!("rule-{}-{:016x}", number + 1, objects.ids().bits());
    }
    check_rules(&rules).map_err(|error| match error {
        BadObjectRules::Amount | BadObjectRules::Marker(_) => {
            s3_error!(MalformedXML, "The rules are not valid: {error}.")
        }
        BadObjectRules::NoAction(_) | BadObjectRules::Filter(_) => {
            s3_error!(InvalidRequest, "The rules are not valid: {error}.")
        }
        BadObjectRules::LongId
        | BadObjectRules::SameId(_)
        | BadObjectRules::Days(_)
        | BadObjectRules::Date(_)
        | BadObjectRules::Kept(_) => s3_error!(InvalidArgument, "The rules are not valid: {error}."),
    })?;
    objects.set_object_rules(&org, &request.input.bucket, Some(rules)).await?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

fn read(rule: LifecycleRule) -> S3Result<ObjectRule> {
    if rule.transitions.is_some() || rule.noncurrent_version_transitions.is_some() {
        return Err(s3_error!(NotImplemented, "There is one storage class, so there are no transitions."));
    }
    let enabled = match rule.status.as_str() {
        ExpirationStatus::ENABLED => true,
        ExpirationStatus::DISABLED => false,
        _ => return Err(s3_error!(MalformedXML, "The status of a rule is Enabled or Disabled.")),
    };
    if rule.filter.is_some() && rule.prefix.is_some() {
        return Err(s3_error!(MalformedXML, "A rule has a Filter or a Prefix, not both."));
    }
    let mut read = ObjectRule {
        id: rule.id.unwrap_or_default(),
        enabled,
        has_plain_prefix: rule.prefix.is_some(),
        prefix: rule.prefix.unwrap_or_default(),
        ..ObjectRule::default()
    };
    if let Some(filter) = rule.filter {
        read_filter(filter, &mut read)?;
    }
    if let Some(expiration) = rule.expiration {
        read_expiration(&expiration, &mut read)?;
    }
    if let Some(old) = rule.noncurrent_version_expiration {
        let kept = old.newer_noncurrent_versions.map(number).transpose()?.unwrap_or(0);
        let days = old.noncurrent_days.ok_or_else(|| s3_error!(MalformedXML, "NoncurrentDays is missing."))?;
        read.old_versions = Some(OldVersions { days: number(days)?, kept });
    }
    let abort = rule.abort_incomplete_multipart_upload;
    read.abort_days = abort.map(|abort| number(abort.days_after_initiation.unwrap_or(0))).transpose()?;
    Ok(read)
}

fn read_filter(filter: LifecycleRuleFilter, rule: &mut ObjectRule) -> S3Result<()> {
    let given = [
        filter.and.is_some(),
        filter.prefix.is_some(),
        filter.tag.is_some(),
        filter.object_size_greater_than.is_some(),
        filter.object_size_less_than.is_some(),
    ];
    if given.into_iter().filter(|is_given| *is_given).count() > 1 {
        return Err(s3_error!(MalformedXML, "A Filter has one condition, or several in And."));
    }
    let and = filter.and.unwrap_or_default();
    let listed = filter.tag.map_or_else(|| and.tags.unwrap_or_default(), |tag| vec![tag]);
    rule.tags = tags::tags_from_set(listed)?;
    rule.prefix = filter.prefix.or(and.prefix).unwrap_or_default();
    let size = |size: Option<i64>| size.map(number).transpose();
    rule.larger_than = size(filter.object_size_greater_than.or(and.object_size_greater_than))?;
    rule.smaller_than = size(filter.object_size_less_than.or(and.object_size_less_than))?;
    Ok(())
}

fn read_expiration(expiration: &LifecycleExpiration, rule: &mut ObjectRule) -> S3Result<()> {
    rule.removes_lone_markers = expiration.expired_object_delete_marker.unwrap_or(false);
    rule.expiry = match (expiration.days, &expiration.date) {
        (Some(_), Some(_)) => return Err(s3_error!(MalformedXML, "A rule has Days or a Date, not both.")),
        (Some(days), None) => Some(Expiry::Days(number(days)?)),
        (None, Some(date)) => {
            let second = times::second(date).and_then(|second| second.checked_mul(1_000_000));
            Some(Expiry::Date(second.ok_or_else(|| s3_error!(InvalidArgument, "The Date is out of range."))?))
        }
        (None, None) => None,
    };
    Ok(())
}

fn number<T, U: TryFrom<T>>(given: T) -> S3Result<U> {
    U::try_from(given).map_err(|_| s3_error!(InvalidArgument, "The numbers of a rule are positive."))
}

fn written(rule: ObjectRule) -> LifecycleRule {
    let status = if rule.enabled { ExpirationStatus::ENABLED } else { ExpirationStatus::DISABLED };
    let days = |days: u32| i32::try_from(days).unwrap_or(i32::MAX);
    let mut expiration = LifecycleExpiration::default();
    match rule.expiry {
        Some(Expiry::Days(count)) => expiration.days = Some(days(count)),
        Some(Expiry::Date(date)) => expiration.date = Some(times::timestamp(Time::from_micros(date))),
        None => expiration.expired_object_delete_marker = rule.removes_lone_markers.then_some(true),
    }
    LifecycleRule {
        abort_incomplete_multipart_upload: rule
            .abort_days
            .map(|count| AbortIncompleteMultipartUpload { days_after_initiation: Some(days(count)) }),
        expiration: (rule.expiry.is_some() || rule.removes_lone_markers).then_some(expiration),
        noncurrent_version_expiration: rule.old_versions.map(|old| NoncurrentVersionExpiration {
            newer_noncurrent_versions: (old.kept > 0).then(|| days(old.kept)),
            noncurrent_days: Some(days(old.days)),
        }),
        id: Some(rule.id.clone()),
        prefix: rule.has_plain_prefix.then(|| rule.prefix.clone()),
        filter: (!rule.has_plain_prefix).then(|| written_filter(rule)),
        noncurrent_version_transitions: None,
        status: ExpirationStatus::from_static(status),
        transitions: None,
    }
}

/// Writes a filter with one condition as such, and one with several in `And`.
fn written_filter(rule: ObjectRule) -> LifecycleRuleFilter {
    let size = |size: Option<u64>| size.and_then(|size| i64::try_from(size).ok());
    let (larger, smaller) = (size(rule.larger_than), size(rule.smaller_than));
    let mut set = tags::tags_to_set(rule.tags);
    let conditions = set.len() + usize::from(!rule.prefix.is_empty()) + [larger, smaller].into_iter().flatten().count();
    let prefix = (!rule.prefix.is_empty()).then_some(rule.prefix);
    if conditions > 1 {
        let tags = (!set.is_empty()).then_some(set);
        let and =
            LifecycleRuleAndOperator { object_size_greater_than: larger, object_size_less_than: smaller, prefix, tags };
        return LifecycleRuleFilter { and: Some(and), ..Default::default() };
    }
    LifecycleRuleFilter {
        and: None,
        object_size_greater_than: larger,
        object_size_less_than: smaller,
        prefix: prefix.or_else(|| (conditions == 0).then(String::new)),
        tag: set.pop(),
    }
}
