//! Object storage of organizations: who has it, the keys that open it, and its buckets. What is in the buckets is the
//! business of S3.

use serde_json::{Value, json};
use tarn_model::ids::OrgId;
use tarn_objects::accounts::{self, Credentials};
use tarn_objects::buckets;
use tarn_store::{Tx, accounts as rows, events};

use crate::{Caller, Control, Error, Kind, Result};

/// What opens the object storage of an organization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The access key with its secret.
    pub credentials: Credentials,
    /// Where S3 is served.
    pub endpoint: String,
    /// What happened, for a person.
    pub message: String,
}

/// What an organization uses of object storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageView {
    /// Whether it is enabled.
    pub enabled: bool,
    /// How many bytes there are, those of old versions and open uploads included.
    pub bytes: u64,
    /// How many objects there are, old versions included.
    pub objects: u64,
    /// How many S3 requests there were. It lags a few seconds.
    pub requests: u64,
    /// How many buckets there are.
    pub buckets: u64,
    /// How many bytes there may be, if that is limited.
    pub quota_bytes: Option<u64>,
}

/// Gives the caller's organization object storage; one that has it keeps its keys.
pub async fn enable(control: &Control, caller: &Caller) -> Result<Opened> {
    let (org, me) = (organization(caller)?, caller.clone());
    let endpoint = endpoint(control)?;
    let write = control.write(caller, move |tx| {
        let (account, new) = accounts::enable(tx, &org)?;
        if new {
            let detail = json!({ "access_key_id": account.access_key });
            record(tx, &me, &org, org.as_str(), "object_storage.enable", &detail)?;
        }
        let message = if new { "Object storage was enabled." } else { "Object storage is enabled already." };
        Ok((account.access_key, message.to_owned()))
    });
    let (access_key, message) = write.await?;
    Ok(opened(control, access_key, endpoint, message))
}

/// Takes object storage from the caller's organization, with all that is in it if he says so.
pub async fn disable(control: &Control, caller: &Caller, force: bool) -> Result<String> {
    let (org, me) = (organization(caller)?, caller.clone());
    let work = move |tx: &mut Tx<'_>| {
        let lost = accounts::get(tx, &org)?;
        accounts::disable(tx, &org, force)?;
        let detail = json!({ "force": force, "objects": lost.objects, "bytes": lost.bytes });
        record(tx, &me, &org, org.as_str(), "object_storage.disable", &detail)?;
        Ok(match lost.objects {
            0 => "Object storage was disabled; its keys open nothing any more.".to_owned(),
            1 => "Object storage was disabled; its keys open nothing any more, and its object is being deleted."
                .to_owned(),
            many => format!(
                "Object storage was disabled; its keys open nothing any more, and its {many} objects are being deleted."
            ),
        })
    };
    let (control, caller) = (control.clone(), caller.clone());
    to_the_end(async move {
        let disabled = control.write(&caller, work).await;
        control.objects().forget_keys();
        control.objects_closed().notify_one();
        disabled
    })
    .await
}

/// The keys of the caller's organization.
pub async fn credentials(control: &Control, caller: &Caller) -> Result<Opened> {
    let (org, endpoint) = (organization(caller)?, endpoint(control)?);
    let account = control.store().read(|tx| accounts::get(tx, &org)).await?;
    Ok(opened(control, account.access_key, endpoint, String::new()))
}

/// Replaces the keys of the caller's organization; the old ones open nothing any more.
pub async fn rotate_keys(control: &Control, caller: &Caller) -> Result<Opened> {
    let (org, me) = (organization(caller)?, caller.clone());
    let endpoint = endpoint(control)?;
    let work = move |tx: &mut Tx<'_>| {
        let old = accounts::get(tx, &org)?.access_key;
        let account = accounts::rotate(tx, &org)?;
        let detail = json!({ "access_key_id": account.access_key, "old_access_key_id": old });
        record(tx, &me, &org, org.as_str(), "object_storage.rotate_keys", &detail)?;
        Ok(account.access_key)
    };
    let (engine, caller) = (control.clone(), caller.clone());
    let rotated = to_the_end(async move {
        let rotated = engine.write(&caller, work).await;
        engine.objects().forget_keys();
        rotated
    });
    let message = "The keys were replaced; the old ones open nothing any more, for nobody in the organization. Its members \
                   get the new ones with `object-storage credentials`.";
    Ok(opened(control, rotated.await?, endpoint, message.to_owned()))
}

/// The names of the organization's buckets, in order.
pub async fn list_buckets(control: &Control, caller: &Caller) -> Result<Vec<String>> {
    let org = organization(caller)?;
    let read = control.store().read(|tx| -> Result<Vec<String>> {
        accounts::get(tx, &org)?;
        Ok(tarn_store::buckets::list(tx, &org)?.into_iter().map(|bucket| bucket.name).collect())
    });
    read.await
}

/// Makes a bucket. The name need be free in the organization only.
pub async fn create_bucket(control: &Control, caller: &Caller, name: &str) -> Result<String> {
    let (org, me, name) = (organization(caller)?, caller.clone(), name.to_owned());
    let write = control.write(caller, move |tx| {
        let bucket = buckets::create(tx, &org, &name)?;
        let detail = json!({ "name": bucket.name });
        record(tx, &me, &org, bucket.id.as_str(), "object_storage.create_bucket", &detail)?;
        Ok(format!("Bucket {} was created.", bucket.name))
    });
    write.await
}

/// Removes an empty bucket, and uploads that were begun in it.
pub async fn delete_bucket(control: &Control, caller: &Caller, name: &str) -> Result<()> {
    let org = organization(caller)?;
    let mut tries = 0;
    loop {
        let (of, me, name) = (org.clone(), caller.clone(), name.to_owned());
        let called = name.clone();
        let removed = control.write(caller, move |tx| remove_bucket(tx, &me, &of, &called)).await;
        match removed {
            // There may be too many for one transaction, and only a call that was not carried out before may touch them.
            Err(error) if error.code == Error::UPLOADS_OPEN && tries < buckets::MAX_REMOVAL_TRIES => {
                tries += 1;
                control.objects().abort_uploads(&org, &name).await?;
            }
            removed => return removed,
        }
    }
}

fn remove_bucket(tx: &mut Tx<'_>, caller: &Caller, org: &OrgId, name: &str) -> Result<()> {
    accounts::get(tx, org)?;
    let bucket = buckets::find(tx, org, name).map_err(|error| match error {
        tarn_objects::Error::NoSuchBucket => Error::not_found("bucket", name),
        other => other.into(),
    })?;
    buckets::remove(tx, org, name)?;
    record(tx, caller, org, bucket.id.as_str(), "object_storage.delete_bucket", &json!({ "name": bucket.name }))
}

/// What the caller's organization uses.
pub async fn usage(control: &Control, caller: &Caller) -> Result<UsageView> {
    let org = organization(caller)?;
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

/// Carries a change to its end, also when the caller hangs up: between a commit and what must follow it, nobody may.
async fn to_the_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(Error::internal(error)))
}

fn organization(caller: &Caller) -> Result<OrgId> {
    let message = "object storage belongs to organizations, and you are in none; a user gets his organization when he is \
                   created (org_name of /admin/user/create)";
    caller.user.org.clone().ok_or_else(|| Error::new(Kind::Forbidden, "no_organization", message))
}

fn endpoint(control: &Control) -> Result<String> {
    let message = "this engine does not serve S3; ask its operator to start it with --s3-listen";
    control.s3().map(str::to_owned).ok_or_else(|| Error::new(Kind::Unavailable, "object_storage_not_served", message))
}

/// The secret is not kept in the outcome of a call: it follows from the key.
fn opened(control: &Control, access_key_id: String, endpoint: String, message: String) -> Opened {
    let secret_access_key = control.objects().secret_of(&access_key_id);
    Opened { credentials: Credentials { access_key_id, secret_access_key }, endpoint, message }
}

fn record(tx: &mut Tx<'_>, caller: &Caller, org: &OrgId, about: &str, verb: &str, detail: &Value) -> Result<()> {
    Ok(events::record(tx, caller.user.id.as_str(), org.as_str(), about, verb, detail)?)
}
