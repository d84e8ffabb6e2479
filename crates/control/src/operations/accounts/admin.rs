//! What administrators of the engine do: users, API keys, balances, and the event log.

use serde::{Deserialize, Serialize};
use tarn_model::Money;
use tarn_model::events::{ApiKeyEvent, Event, ScopeEvent, UserEvent};
use tarn_model::ids::{ApiKeyId, OrgId, UserId, fresh_api_key};
use tarn_model::ledger::{Account, Transfer};
use tarn_model::users::{Organization, User, is_email, is_org_name};
use tarn_store::{Tx, events, ledger, users};

use crate::operations::object_storage::keys::legacy_key_warning;
use crate::operations::scope_of;
use crate::page::{self, cut, decode_cursor};
use crate::{Caller, Control, Error, Page, Result, hash_of_key};

pub use tarn_store::events::Recorded;
pub use tarn_store::users::ApiKey;

/// The user to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewUser {
    pub email: String,
    /// The organization to create or to join.
    pub org_name: Option<String>,
}

/// A new user with an API key, which is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CreatedUser {
    pub user: UserId,
    pub org: Option<OrgId>,
    pub api_key: String,
    pub message: String,
}

/// A user as administrators see them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UserRow {
    pub user: User,
    pub org_name: Option<String>,
    pub balance: Money,
}

/// A new API key, which is shown only once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CreatedKey {
    pub id: ApiKeyId,
    pub user: UserId,
    pub api_key: String,
    pub message: String,
}

/// The balance after a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Granted {
    pub account: String,
    pub balance: Money,
    pub message: String,
}

/// Creates a user with an API key. The first user of an organization becomes its administrator.
pub async fn create_user(control: &Control, caller: &Caller, new: NewUser) -> Result<CreatedUser> {
    caller.must_administer()?;
    if !is_email(&new.email) {
        return Err(Error::invalid("invalid_email", "email must be an address such as ada@example.org"));
    }
    if new.org_name.as_deref().is_some_and(|name| !is_org_name(name)) {
        let message = "org_name must have 1 to 100 characters, no control characters and no leading or trailing spaces";
        return Err(Error::invalid("invalid_org_name", message));
    }
    let write = control.write(caller, move |tx| {
        if users::find(tx, &new.email)?.is_some() {
            return Err(Error::conflict("email_taken", format!("user {} already exists", new.email)));
        }
        let user = insert_user(tx, &new.email, new.org_name.as_deref(), false)?;
        let (key, api_key) = issue_key(tx, &user.id)?;
        record_user_event(tx, &user, UserEvent::Created { email: user.email.clone() })?;
        record_key_event(tx, &user, &key, ApiKeyEvent::Created { user: user.id.clone() })?;
        let membership = match (&new.org_name, user.org_admin) {
            (Some(name), true) => format!("in the new organization {name}, as its administrator"),
            (Some(name), false) => format!("in the organization {name}"),
            (None, _) => "in no organization".to_owned(),
        };
        let message =
            format!("User {} ({}) was created {membership}. The API key is shown only once.", user.email, user.id);
        Ok(CreatedUser { user: user.id, org: user.org, api_key, message })
    });
    write.await
}

/// Lists all users, newest first.
pub async fn list_users(
    control: &Control,
    caller: &Caller,
    limit: Option<u32>,
    cursor: Option<String>,
) -> Result<Page<UserRow>> {
    caller.must_administer()?;
    let (after, limit) = (decode_cursor(cursor.as_deref(), UserId::PREFIX)?, page::limit(limit)?);
    let read = control.store().read(|tx| -> Result<Page<UserRow>> {
        let found = users::list(tx, after.as_ref().map(|(time, id)| (*time, id.as_str())), limit + 1)?;
        let page = cut(found, limit, |user| (user.created, user.id.to_string()));
        let mut items = Vec::with_capacity(page.items.len());
        for user in page.items {
            let org = user.org.as_ref().map(|id| users::org(tx, id)).transpose()?.flatten();
            let balance = ledger::balance(tx, &Account::balance_of(scope_of(&user)))?;
            items.push(UserRow { user, org_name: org.map(|org| org.name), balance });
        }
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}

/// Disables a user immediately, or enables them again. Administrators cannot disable themselves.
pub async fn disable_user(control: &Control, caller: &Caller, user: &str, disabled: bool) -> Result<String> {
    caller.must_administer()?;
    let id: UserId = user.parse()?;
    if disabled && id == caller.user.id {
        return Err(Error::conflict("own_user", "you cannot disable yourself; ask another administrator"));
    }
    let objects = control.objects().clone();
    let write = control.write(caller, move |tx| {
        let user = users::get(tx, &id)?.ok_or_else(|| Error::not_found("user", id.as_str()))?;
        users::set_disabled(tx, &id, disabled)?;
        let email = user.email.clone();
        let event = if disabled { UserEvent::Disabled { email } } else { UserEvent::Enabled { email } };
        record_user_event(tx, &user, event)?;
        let warning = if disabled { legacy_key_warning(tx, &objects, &user)? } else { String::new() };
        Ok(format!("User {} ({id}) is now {}.{warning}", user.email, if disabled { "disabled" } else { "enabled" }))
    });
    let done = write.await;
    // The SSH keys of a disabled user no longer open anything.
    control.notify_access_changed();
    done
}

/// Creates another API key for a user.
pub async fn create_key(control: &Control, caller: &Caller, user: &str) -> Result<CreatedKey> {
    caller.must_administer()?;
    let id: UserId = user.parse()?;
    let write = control.write(caller, move |tx| {
        let user = users::get(tx, &id)?.ok_or_else(|| Error::not_found("user", id.as_str()))?;
        let (key, api_key) = issue_key(tx, &id)?;
        record_key_event(tx, &user, &key, ApiKeyEvent::Created { user: user.id.clone() })?;
        let message = format!("Key {key} for {} was created. It is shown only once.", user.email);
        Ok(CreatedKey { id: key, user: user.id, api_key, message })
    });
    write.await
}

/// Lists API keys, of one user or of all, newest first.
pub async fn list_keys(
    control: &Control,
    caller: &Caller,
    user: Option<&str>,
    limit: Option<u32>,
    cursor: Option<String>,
) -> Result<Page<ApiKey>> {
    caller.must_administer()?;
    let user = user.map(str::parse::<UserId>).transpose()?;
    let (after, limit) = (decode_cursor(cursor.as_deref(), ApiKeyId::PREFIX)?, page::limit(limit)?);
    let read = control.store().read(|tx| -> Result<Page<ApiKey>> {
        let after = after.as_ref().map(|(time, id)| (*time, id.as_str()));
        let mut found = users::keys(tx, user.as_ref(), after, limit + 1)?;
        for key in &mut found {
            // What this process has not stored yet is newer.
            key.last_used = key.last_used.max(control.memory.key_usage.last_use(&key.id));
        }
        Ok(cut(found, limit, |key| (key.created, key.id.to_string())))
    });
    read.await
}

/// Revokes an API key immediately, except the one of this call.
pub async fn revoke_key(control: &Control, caller: &Caller, key: &str) -> Result<String> {
    caller.must_administer()?;
    let id: ApiKeyId = key.parse()?;
    if id == caller.key {
        return Err(Error::conflict("own_key", "you cannot revoke the API key that this call uses; use another key"));
    }
    let write = control.write(caller, move |tx| {
        let missing = || Error::not_found("API key", id.as_str());
        let key = users::key(tx, &id)?.ok_or_else(missing)?;
        let user = users::get(tx, &key.user)?.ok_or_else(missing)?;
        users::revoke_key(tx, &id)?;
        record_key_event(tx, &user, &id, ApiKeyEvent::Revoked { user: user.id.clone() })?;
        Ok(format!("Key {id} no longer works."))
    });
    let revoked = write.await;
    control.notify_access_changed();
    revoked
}

/// Adds to the balance of an organization or a user, or subtracts with a negative amount.
pub async fn grant(
    control: &Control,
    caller: &Caller,
    to: &str,
    amount: Money,
    description: Option<String>,
) -> Result<Granted> {
    caller.must_administer()?;
    if amount == Money::ZERO {
        return Err(Error::invalid("invalid_amount", "the amount must not be zero; the smallest is $0.000001"));
    }
    let description = description.unwrap_or_else(|| "grant".to_owned());
    if description.chars().count() > 200 || description.chars().any(char::is_control) {
        return Err(Error::invalid(
            "invalid_description",
            "the description must have at most 200 characters and no control characters",
        ));
    }
    let (me, to) = (caller.clone(), to.to_owned());
    let write = control.write(caller, move |tx| {
        let scope = account_scope(tx, &to)?;
        let transfer = Transfer::grant(&scope, amount, description.clone());
        let id = format!("t-{:016x}", tx.ids().bits());
        ledger::record(tx, &id, me.user.id.as_str(), &transfer)?;
        let granted = ScopeEvent::Granted { micros: amount.as_micros(), transaction: id };
        tx.record(&scope, Event::Scope(scope.clone(), granted))?;
        let balance = ledger::balance(tx, &Account::balance_of(&scope))?;
        Ok(Granted { message: format!("The balance of {scope} is now {balance}."), account: scope, balance })
    });
    write.await
}

/// Lists the events after the one with this number, oldest first.
pub async fn events(control: &Control, caller: &Caller, after: i64, limit: Option<u32>) -> Result<Vec<Recorded>> {
    caller.must_administer()?;
    let limit = page::limit(limit)?;
    control.store().read(|tx| events::after(tx, after, limit)).await.map_err(Error::from)
}

/// Inserts a user. An unknown organization is created, and its first user administers it.
pub(crate) fn insert_user(tx: &mut Tx<'_>, email: &str, org_name: Option<&str>, engine_admin: bool) -> Result<User> {
    let now = tx.now();
    let (org, org_admin) = match org_name {
        None => (None, false),
        Some(name) => match users::find_org(tx, name)? {
            Some(org) => (Some(org.id), false),
            None => {
                let org = Organization { id: OrgId::fresh(tx.ids()), name: name.to_owned(), created: now };
                users::insert_org(tx, &org)?;
                (Some(org.id), true)
            }
        },
    };
    let id = UserId::fresh(tx.ids());
    let user = User { id, email: email.to_owned(), org, org_admin, engine_admin, disabled: false, created: now };
    users::insert(tx, &user)?;
    Ok(user)
}

/// Creates an API key; only its hash is stored.
pub(crate) fn issue_key(tx: &mut Tx<'_>, user: &UserId) -> Result<(ApiKeyId, String)> {
    let secret = fresh_api_key(tx.ids());
    Ok((store_key_hash(tx, user, &secret)?, secret))
}

/// Stores the hash of an API key.
pub(crate) fn store_key_hash(tx: &mut Tx<'_>, user: &UserId, secret: &str) -> Result<ApiKeyId> {
    let id = ApiKeyId::fresh(tx.ids());
    let key = ApiKey { id, user: user.clone(), created: tx.now(), revoked: None, last_used: None };
    users::insert_key(tx, &key, &hash_of_key(secret))?;
    Ok(key.id)
}

/// Returns the scope whose balance is meant: an organization, the organization of a user, or a user without one.
pub(super) fn account_scope(tx: &mut Tx<'_>, to: &str) -> Result<String> {
    if let Ok(org) = to.parse::<OrgId>() {
        let org = users::org(tx, &org)?.ok_or_else(|| Error::not_found("organization", to))?;
        return Ok(org.id.to_string());
    }
    let Ok(user) = to.parse::<UserId>() else {
        let message = format!(
            "`{}` is neither the id of an organization (o-…) nor of a user (u-…); find them in the list of users",
            tarn_base::plain(to, 64)
        );
        return Err(Error::invalid("invalid_id", message));
    };
    let user = users::get(tx, &user)?.ok_or_else(|| Error::not_found("user", to))?;
    Ok(scope_of(&user).to_owned())
}

fn record_user_event(tx: &mut Tx<'_>, user: &User, event: UserEvent) -> Result<()> {
    Ok(tx.record(scope_of(user), Event::User(user.id.clone(), event))?)
}

fn record_key_event(tx: &mut Tx<'_>, user: &User, key: &ApiKeyId, event: ApiKeyEvent) -> Result<()> {
    Ok(tx.record(scope_of(user), Event::ApiKey(key.clone(), event))?)
}
