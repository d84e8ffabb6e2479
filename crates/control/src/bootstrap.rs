//! The first administrator, and a new key for the administrator when the old one was lost.

use tarn_model::events::{Event, UserEvent};
use tarn_model::users::User;
use tarn_store::{Store, Tx, users};

use crate::operations::admin::{insert_user, store_key_hash};
use crate::{Error, Result};

/// The email address of the first administrator.
pub const ADMIN_EMAIL: &str = "admin@localhost";

/// The name of the first organization.
pub const ADMIN_ORG: &str = "default";

/// Returns whether the first administrator does not exist yet.
pub async fn needs_admin(store: &Store) -> Result<bool> {
    let admin = store.read(users::first_admin).await.map_err(Error::from)?;
    Ok(admin.is_none())
}

/// Creates the first administrator with an organization and this key. Returns `false` when another process was faster.
pub async fn make_admin(store: &Store, api_key: String) -> Result<bool> {
    let write = store.write(move |tx| -> Result<bool> {
        if users::first_admin(tx)?.is_some() {
            return Ok(false);
        }
        let admin = insert_user(tx, ADMIN_EMAIL, Some(ADMIN_ORG), true)?;
        store_key_hash(tx, &admin.id, &api_key)?;
        record_admin_event(tx, &admin, UserEvent::Created { email: admin.email.clone() })?;
        Ok(true)
    });
    write.await
}

/// Replaces all keys of the first administrator with this one. Returns `false` when there is no administrator.
pub async fn reset_admin_key(store: &Store, api_key: String) -> Result<bool> {
    let write = store.write(move |tx| -> Result<bool> {
        let Some(admin) = users::first_admin(tx)? else {
            return Ok(false);
        };
        users::revoke_keys_of(tx, &admin.id)?;
        store_key_hash(tx, &admin.id, &api_key)?;
        record_admin_event(tx, &admin, UserEvent::KeysReset { email: admin.email.clone() })?;
        Ok(true)
    });
    write.await
}

fn record_admin_event(tx: &mut Tx<'_>, admin: &User, event: UserEvent) -> Result<()> {
    Ok(tx.record(admin.owner().scope(), Event::User(admin.id.clone(), event))?)
}
