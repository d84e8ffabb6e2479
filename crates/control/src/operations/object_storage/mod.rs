//! Object storage of organizations: whether it is enabled, its buckets, and in [`keys`] the access keys of its members.
//! The objects in the buckets are managed through S3.

pub mod keys;

use tarn_base::tasks::run_to_completion;
use tarn_model::access::{Action, Object};
use tarn_model::events::{AccountEvent, BucketEvent, Event};
use tarn_model::ids::OrgId;
use tarn_objects::keys::Credentials;
use tarn_objects::{accounts, buckets};
use tarn_store::{Tx, accounts as rows};

use crate::{Caller, Control, Error, Kind, Result};

/// The access of a user to the object storage of their organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStorageAccess {
    pub credentials: Credentials,
    /// Where S3 is served.
    pub endpoint: String,
    pub message: String,
}

/// How much an organization uses of its object storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageView {
    pub enabled: bool,
    /// The size of all objects, including old versions and open uploads.
    pub bytes: u64,
    /// The number of objects, including old versions.
    pub objects: u64,
    /// The number of S3 requests so far. It lags by a few seconds.
    pub requests: u64,
    pub buckets: u64,
    /// The maximum size of all objects, if it is limited.
    pub quota_bytes: Option<u64>,
}

/// Enables object storage for the caller's organization, and gives the caller a key. If it is enabled already, the keys
/// stay the same.
pub async fn enable(control: &Control, caller: &Caller) -> Result<ObjectStorageAccess> {
    let (org, me) = (caller_organization(caller)?, caller.clone());
    let endpoint = s3_endpoint(control)?;
    let write = control.write(caller, move |tx| {
        let (_, new) = accounts::enable(tx, &org)?;
        if new {
            record_account_event(tx, &org, AccountEvent::Enabled {})?;
        }
        let key = keys::ensure_key(tx, &me, &org)?;
        record_account_event(tx, &org, AccountEvent::CredentialsShown { access_key_id: key.id.clone() })?;
        let message = if new { "Object storage was enabled." } else { "Object storage is enabled already." };
        Ok((key.id, message.to_owned()))
    });
    let (access_key, message) = write.await?;
    Ok(access_with_secret(control, &access_key, endpoint, message))
}

/// Disables object storage for the caller's organization. With `force`, all objects are deleted.
pub async fn disable(control: &Control, caller: &Caller, force: bool) -> Result<String> {
    let (org, me) = (caller_organization(caller)?, caller.clone());
    let work = move |tx: &mut Tx<'_>| {
        let lost = accounts::get(tx, &org)?;
        // The objects belong to all members, and not to the one who enabled it.
        let all = Object::Owned { creator: None, org: Some(&org) };
        me.must_be_allowed(tx, Action::DisableObjectStorage, all, org.as_str())?;
        accounts::disable(tx, &org, force)?;
        let disabled = AccountEvent::Disabled { force, objects: lost.objects, bytes: lost.bytes };
        record_account_event(tx, &org, disabled)?;
        Ok(match lost.objects {
            0 => "Object storage was disabled; its access keys no longer work.".to_owned(),
            1 => "Object storage was disabled; its access keys no longer work, and its object is being deleted."
                .to_owned(),
            many => format!(
                "Object storage was disabled; its access keys no longer work, and its {many} objects are being deleted."
            ),
        })
    };
    let (control, caller) = (control.clone(), caller.clone());
    run_to_completion(async move {
        let disabled = control.write(&caller, work).await;
        control.memory.objects_closed.notify_one();
        disabled
    })
    .await
}

/// Lists the names of the organization's buckets, in order.
pub async fn list_buckets(control: &Control, caller: &Caller) -> Result<Vec<String>> {
    let org = caller_organization(caller)?;
    let read = control.store().read(|tx| -> Result<Vec<String>> {
        accounts::get(tx, &org)?;
        Ok(tarn_store::buckets::list(tx, &org)?.into_iter().map(|bucket| bucket.name).collect())
    });
    read.await
}

/// Creates a bucket. Its name must be free within the organization only.
pub async fn create_bucket(control: &Control, caller: &Caller, name: &str) -> Result<String> {
    let (org, me, name) = (caller_organization(caller)?, caller.clone(), name.to_owned());
    let write = control.write(caller, move |tx| {
        let bucket = buckets::create(tx, &org, Some(&me.user.id), &name)?;
        let created = BucketEvent::Created { name: bucket.name.clone() };
        tx.record(org.as_str(), Event::Bucket(bucket.id, created))?;
        Ok(format!("Bucket {} was created.", bucket.name))
    });
    write.await
}

/// Removes an empty bucket together with its open uploads.
pub async fn delete_bucket(control: &Control, caller: &Caller, name: &str) -> Result<()> {
    let org = caller_organization(caller)?;
    let mut tries = 0;
    loop {
        let (of, me, name) = (org.clone(), caller.clone(), name.to_owned());
        let called = name.clone();
        let removed = control.write(caller, move |tx| remove_empty_bucket(tx, &me, &of, &called)).await;
        match removed {
            // There may be too many uploads for one transaction, and a repeated idempotent call must not abort any.
            Err(error) if error.code == Error::UPLOADS_OPEN && tries < buckets::MAX_REMOVAL_TRIES => {
                tries += 1;
                control.objects().abort_uploads(&org, &name).await?;
            }
            removed => return removed,
        }
    }
}

fn remove_empty_bucket(tx: &mut Tx<'_>, caller: &Caller, org: &OrgId, name: &str) -> Result<()> {
    accounts::get(tx, org)?;
    let bucket = buckets::find(tx, org, name).map_err(|error| match error {
        tarn_objects::Error::NoSuchBucket => Error::not_found("bucket", name),
        other => other.into(),
    })?;
    let object = Object::Owned { creator: bucket.creator.as_ref(), org: Some(&bucket.org) };
    caller.must_be_allowed(tx, Action::DeleteBucket, object, name)?;
    buckets::remove(tx, org, name)?;
    let deleted = BucketEvent::Deleted { name: bucket.name };
    Ok(tx.record(org.as_str(), Event::Bucket(bucket.id, deleted))?)
}

/// Returns how much the caller's organization uses.
pub async fn usage(control: &Control, caller: &Caller) -> Result<UsageView> {
    let org = caller_organization(caller)?;
    let configured = control.objects().quota_bytes(&org);
    let read = control.store().read(|tx| -> Result<UsageView> {
        let quota_bytes = tarn_store::limits::object_bytes(tx, org.as_str())?.or(configured);
        let Some(account) = rows::get(tx, &org)? else { return Ok(UsageView { quota_bytes, ..UsageView::default() }) };
        Ok(UsageView {
            enabled: !account.closing,
            bytes: account.bytes,
            objects: account.objects,
            requests: account.requests,
            buckets: tarn_store::buckets::count(tx, &org)?,
            quota_bytes,
        })
    });
    read.await
}

fn caller_organization(caller: &Caller) -> Result<OrgId> {
    let message = "object storage belongs to organizations, and you are not in one; an administrator chooses the \
                   organization of a user when creating the user (org_name of /admin/user/create)";
    caller.user.org.clone().ok_or_else(|| Error::new(Kind::Forbidden, "no_organization", message))
}

fn s3_endpoint(control: &Control) -> Result<String> {
    let message = "this engine does not serve S3; ask its operator to start it with --s3-listen";
    control.s3().map(str::to_owned).ok_or_else(|| Error::new(Kind::Unavailable, "object_storage_not_served", message))
}

/// Adds the secret, which is derived from the access key and therefore not stored with the outcome of a call.
fn access_with_secret(control: &Control, access_key: &str, endpoint: String, message: String) -> ObjectStorageAccess {
    ObjectStorageAccess { credentials: control.objects().credentials(access_key), endpoint, message }
}

fn record_account_event(tx: &mut Tx<'_>, org: &OrgId, event: AccountEvent) -> Result<()> {
    Ok(tx.record(org.as_str(), Event::Account(org.clone(), event))?)
}
