//! The S3 keys of users. A key stops working when it is revoked, when its user is disabled or leaves the organization,
//! and when object storage is disabled. An organization may also have a *legacy* key, which all its members shared
//! before keys belonged to users.

use std::time::Duration;

use tarn_base::tasks::run_to_completion;
use tarn_model::Time;
use tarn_model::access::{Action, Object};
use tarn_model::events::{AccountEvent, Event, S3KeyEvent};
use tarn_model::ids::OrgId;
use tarn_model::names;
use tarn_model::s3_keys::{S3Key, is_id};
use tarn_model::ssh_keys::is_name;
use tarn_model::users::User;
use tarn_objects::{Objects, accounts, keys};
use tarn_store::s3_keys::{self as rows, Selection};
use tarn_store::{Tx, accounts as account_rows};

pub use tarn_store::s3_keys::ListedKey;

use super::{ObjectStorageAccess, access_with_secret, caller_organization, s3_endpoint};
use crate::page::{self, cut, decode_cursor};
use crate::{Caller, Control, Error, Kind, Page, Result};

/// The prefix of every id of a key.
const PREFIX: &str = "TARN";

/// A page of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPage {
    pub page: Page<ListedKey>,
    /// The legacy key of the organization; only on the first page of an administrator.
    pub legacy: Option<LegacyKey>,
    pub now: Time,
}

/// The key that all members of an organization shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyKey {
    pub id: String,
    pub created: Time,
    pub last_used: Option<Time>,
    /// The date in the configuration at which it stops working.
    pub ends: Option<Time>,
}

/// Returns the caller's current key. Creates it if they have none.
pub async fn credentials(control: &Control, caller: &Caller) -> Result<ObjectStorageAccess> {
    let (org, endpoint, me) = (caller_organization(caller)?, s3_endpoint(control)?, caller.clone());
    let found = control.store().read(|tx| -> Result<_> {
        accounts::get(tx, &org)?;
        let working = keys::working(tx, &caller.user.id, &org)?;
        Ok(keys::current(&working).map(|key| key.id.clone()))
    });
    let id = match found.await? {
        Some(id) => id,
        None => {
            let org = org.clone();
            control.write(caller, move |tx| Ok(ensure_key(tx, &me, &org)?.id)).await?
        }
    };
    let shown = AccountEvent::CredentialsShown { access_key_id: id.clone() };
    control.record_shown(caller, org.as_str(), Event::Account(org.clone(), shown)).await?;
    Ok(access_with_secret(control, &id, endpoint, String::new()))
}

/// Lists the keys of the caller; for an administrator of the organization, those of all members.
pub async fn list(
    control: &Control,
    caller: &Caller,
    ended: bool,
    limit: Option<u32>,
    cursor: Option<&str>,
) -> Result<KeyPage> {
    let org = caller_organization(caller)?;
    let (after, limit) = (decode_cursor(cursor, PREFIX)?, page::limit(limit)?);
    let sees_all = administers(caller, &org);
    let read = control.store().read(|tx| -> Result<KeyPage> {
        accounts::get(tx, &org)?;
        let user = if sees_all { None } else { Some(&caller.user.id) };
        let after = after.as_ref().map(|(time, id)| (*time, id.as_str()));
        let found = rows::list(tx, Selection { org: &org, user, ended }, after, limit + 1)?;
        let legacy = if sees_all && after.is_none() { legacy_key(tx, control.objects(), &org)? } else { None };
        let page = cut(found, limit, |listed| (listed.key.created, listed.key.id.clone()));
        Ok(KeyPage { page, legacy, now: tx.now() })
    });
    read.await
}

/// Creates another key for the caller.
pub async fn create(control: &Control, caller: &Caller, name: Option<String>) -> Result<(String, ObjectStorageAccess)> {
    let (org, me, endpoint) = (caller_organization(caller)?, caller.clone(), s3_endpoint(control)?);
    if name.as_deref().is_some_and(|name| !is_name(name)) {
        let message = "the name of a key must have 1 to 100 characters and no control characters";
        return Err(Error::invalid("invalid_name", message));
    }
    let write = control.write(caller, move |tx| {
        let name = name.clone().unwrap_or_else(|| names::generate(tx.ids(), false));
        let key = keys::create(tx, &me.user.id, &org, &name)?;
        record_new_key(tx, &key)?;
        Ok((key.id, key.name))
    });
    let (id, name) = write.await?;
    let message = format!("S3 key {id} ({name}) was created.");
    Ok((name, access_with_secret(control, &id, endpoint, message)))
}

/// Ends a key at once: one of the caller or, for an administrator of the organization, of another member.
pub async fn revoke(control: &Control, caller: &Caller, id: &str) -> Result<String> {
    if !is_id(id) {
        return Err(Error::not_found("S3 key", id));
    }
    let (me, id) = (caller.clone(), id.to_owned());
    let work = move |tx: &mut Tx<'_>| {
        let Some(key) = rows::get(tx, &id)? else { return Err(missing_key(tx, &me, &id)?) };
        let object = Object::Owned { creator: Some(&key.user), org: Some(&key.org) };
        me.must_be_allowed(tx, Action::RevokeS3Key, object, &id)?;
        if keys::revoke(tx, &key)? {
            let revoked = S3KeyEvent::Revoked { user: key.user.clone(), name: key.name.clone() };
            tx.record(key.org.as_str(), Event::S3Key(key.id.clone(), revoked))?;
        }
        Ok(format!("S3 key {} ({}) no longer works, and neither do URLs that were signed with it.", key.id, key.name))
    };
    write_and_forget(control, caller, work).await
}

/// Replaces the keys of the caller. The old ones end at once, or the only one after `keep`, which is at most a week.
pub async fn rotate(control: &Control, caller: &Caller, keep: Option<Duration>) -> Result<ObjectStorageAccess> {
    let (org, me, endpoint) = (caller_organization(caller)?, caller.clone(), s3_endpoint(control)?);
    let objects = control.objects().clone();
    let work = move |tx: &mut Tx<'_>| {
        let (key, replaced) = keys::rotate(tx, &me.user.id, &org, keep)?;
        let old_access_key_ids = replaced.iter().map(|key| key.id.clone()).collect();
        let until = replaced.iter().filter_map(|key| key.ends).max().filter(|end| *end > tx.now());
        let until = until.map(|end| end.to_string());
        let (access_key_id, old_until) = (key.id.clone(), until.clone());
        let rotated = S3KeyEvent::Rotated { access_key_id, old_access_key_ids, old_until };
        tx.record(org.as_str(), Event::S3Key(key.id.clone(), rotated))?;
        let warning = legacy_key_warning(tx, &objects, &me.user)?;
        Ok((key.id, format!("{}{warning}", describe_rotation(until.as_deref()))))
    };
    let (id, message) = write_and_forget(control, caller, work).await?;
    Ok(access_with_secret(control, &id, endpoint, message))
}

fn describe_rotation(until: Option<&str>) -> String {
    match until {
        Some(until) => format!("You have a new access key; the old one works until {until}."),
        None => "You have a new access key; your old ones no longer work.".to_owned(),
    }
}

/// Ends the legacy key of the caller's organization. Only its administrators may do this.
pub async fn retire_legacy(control: &Control, caller: &Caller) -> Result<String> {
    let (org, me, objects) = (caller_organization(caller)?, caller.clone(), control.objects().clone());
    let work = move |tx: &mut Tx<'_>| {
        me.must_be_allowed(tx, Action::ManageS3Keys, keys_of(&org), org.as_str())?;
        accounts::get(tx, &org)?;
        let Some(key) = legacy_key(tx, &objects, &org)? else {
            return Err(Error::new(Kind::NotFound, "no_legacy_key", "your organization has no legacy key that works"));
        };
        account_rows::retire_legacy_key(tx, &org)?;
        let retired = S3KeyEvent::LegacyRetired { access_key_id: key.id.clone() };
        tx.record(org.as_str(), Event::S3Key(key.id.clone(), retired))?;
        Ok(format!("The legacy key {} no longer works. Each member has keys of their own.", key.id))
    };
    write_and_forget(control, caller, work).await
}

/// Returns the caller's current key within a transaction. Creates it if they have none.
pub(super) fn ensure_key(tx: &mut Tx<'_>, caller: &Caller, org: &OrgId) -> Result<S3Key> {
    let (key, new) = keys::ensure(tx, &caller.user.id, org)?;
    if new {
        record_new_key(tx, &key)?;
    }
    Ok(key)
}

/// Says that the legacy key of a user's organization still works, which they may know; empty if there is none.
pub(in crate::operations) fn legacy_key_warning(tx: &mut Tx<'_>, objects: &Objects, user: &User) -> Result<String> {
    let Some(org) = &user.org else { return Ok(String::new()) };
    Ok(match objects.legacy_key(tx, org)? {
        None => String::new(),
        Some(key) => format!(
            " The legacy S3 key {key} of the organization {org} still works for everyone who knows it; an administrator of \
             the organization ends it with POST /object-storage/keys/retire-legacy."
        ),
    })
}

/// Whether a user may see and revoke the keys of all members of an organization, and retire its legacy key.
fn administers(caller: &Caller, org: &OrgId) -> bool {
    caller.is_allowed(Action::ManageS3Keys, keys_of(org))
}

/// The keys of all members of an organization.
fn keys_of(org: &OrgId) -> Object<'_> {
    Object::Owned { creator: None, org: Some(org) }
}

fn legacy_key(tx: &mut Tx<'_>, objects: &Objects, org: &OrgId) -> Result<Option<LegacyKey>> {
    let account = account_rows::get(tx, org)?;
    Ok(match (objects.legacy_key(tx, org)?, account) {
        (Some(id), Some(account)) => Some(LegacyKey {
            id,
            created: account.created,
            last_used: account.legacy_used,
            ends: objects.legacy_keys_until(),
        }),
        _ => None,
    })
}

/// The error for an id that is no key of a user. An administrator may have meant the legacy key.
fn missing_key(tx: &mut Tx<'_>, caller: &Caller, id: &str) -> Result<Error> {
    let account = match &caller.user.org {
        Some(org) if administers(caller, org) => account_rows::get(tx, org)?,
        _ => None,
    };
    let is_legacy = account.and_then(|account| account.legacy_key).is_some_and(|key| key == id);
    if is_legacy {
        let message =
            "this is the legacy key of your organization; end it with POST /object-storage/keys/retire-legacy";
        Ok(Error::conflict("legacy_key", message))
    } else {
        Ok(Error::not_found("S3 key", id))
    }
}

fn record_new_key(tx: &mut Tx<'_>, key: &S3Key) -> Result<()> {
    let created = S3KeyEvent::Created { user: key.user.clone(), name: key.name.clone() };
    Ok(tx.record(key.org.as_str(), Event::S3Key(key.id.clone(), created))?)
}

/// Commits the end of a key, and makes S3 refuse it, even if the caller disconnects.
async fn write_and_forget<T, F>(control: &Control, caller: &Caller, work: F) -> Result<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send + 'static,
    F: Fn(&mut Tx<'_>) -> Result<T> + Send + Sync + 'static,
{
    let (control, caller) = (control.clone(), caller.clone());
    run_to_completion(async move { control.write(&caller, work).await }).await
}
