//! Saved SSH keys.

use serde::{Deserialize, Serialize};
use tarn_model::access::{Action, Object};
use tarn_model::events::{Event, SshKeyEvent};
use tarn_model::ids::SshKeyId;
use tarn_model::ssh_keys::{self as rules, ParsedKey, SshKey};
use tarn_store::{Tx, cluster_keys, ssh_keys};

use crate::operations::whose;
use crate::{Caller, Control, Error, Result, access};

/// A key that was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedKey {
    pub key: SshKeyId,
    pub message: String,
}

/// Saves a key to the caller's profile. It is added to all clusters of the caller's organization, including running
/// ones.
pub async fn add(control: &Control, caller: &Caller, public_key: &str, name: Option<String>) -> Result<AddedKey> {
    let key = rules::parse(public_key).map_err(|error| Error::invalid("invalid_ssh_key", error.to_string()))?;
    if let Some(name) = &name
        && !rules::is_name(name)
    {
        return Err(Error::invalid(
            "invalid_name",
            "the name of a key must have 1 to 100 characters and no control characters",
        ));
    }
    let me = caller.clone();
    let write = control.write(caller, move |tx| {
        if let Some(known) = ssh_keys::find(tx, me.user.id.as_str(), &key.fingerprint)? {
            return Err(Error::conflict(
                "ssh_key_exists",
                format!("you have already saved this key as {} ({})", known.id, known.name),
            ));
        }
        let saved = save_key(tx, &me, &key, name.as_deref())?;
        Ok(AddedKey { message: format!("SSH key {} ({}) was added.", saved.name, saved.id), key: saved.id })
    });
    let added = write.await;
    control.notify_access_changed();
    added
}

/// Lists the keys of the caller, or of the caller's organization.
pub async fn list(control: &Control, caller: &Caller, include_org: bool) -> Result<Vec<SshKey>> {
    let whose = whose(caller, include_org);
    control.store().read(|tx| ssh_keys::list(tx, whose)).await.map_err(Error::from)
}

/// Removes a key. It is also withdrawn from the clusters that it was given to: from those that its owner created or, if
/// the caller may remove the keys of all members, from all. Any member can save any key, so the owner of a copy must
/// not take the key away from the clusters of others.
pub async fn remove(control: &Control, caller: &Caller, key: &str) -> Result<String> {
    let id: SshKeyId = key.parse()?;
    let me = caller.clone();
    let write = control.write(caller, move |tx| {
        let key = ssh_keys::get(tx, &id)?.ok_or_else(|| Error::not_found("SSH key", id.as_str()))?;
        me.must_own(&key.owner, "SSH key", id.as_str())?;
        me.must_be_allowed(tx, Action::RemoveSshKey, &key.owner, id.as_str())?;
        ssh_keys::remove(tx, &id)?;
        let all = Object::Owned { creator: None, org: key.owner.org.as_ref() };
        let creator = if me.is_allowed(Action::RemoveSshKey, all) { None } else { Some(&key.owner.user) };
        let withdrawn = cluster_keys::withdraw(tx, key.owner.scope(), &key.fingerprint, creator)?;
        let removed = SshKeyEvent::Removed { fingerprint: key.fingerprint.clone(), withdrawn_from: withdrawn };
        tx.record(key.owner.scope(), Event::SshKey(id.clone(), removed))?;
        let copies = ssh_keys::with_fingerprint(tx, &key.fingerprint)?;
        let shared = copies.iter().any(|copy| copy.owner.scope() == key.owner.scope());
        Ok(format!("SSH key {} ({}) was removed{}", key.name, key.id, describe_removal(shared, withdrawn)))
    });
    let removed = write.await;
    control.notify_access_changed();
    removed
}

/// Describes the consequences of removing a key.
fn describe_removal(shared: bool, withdrawn: u64) -> String {
    match (shared, withdrawn) {
        (true, _) => {
            ". It still opens the clusters, because another member of the organization has saved it too.".to_owned()
        }
        (false, 0) => "; running instances refuse it within seconds.".to_owned(),
        (false, 1) => {
            "; running instances refuse it within seconds. It was also withdrawn from the cluster it was given to."
                .to_owned()
        }
        (false, many) => format!(
            "; running instances refuse it within seconds. It was also withdrawn from the {many} clusters \
             it was given to."
        ),
    }
}

/// Saves a key unless the caller has already saved it, and returns it.
pub(in crate::operations) fn save_key(
    tx: &mut Tx<'_>,
    caller: &Caller,
    key: &ParsedKey,
    name: Option<&str>,
) -> Result<SshKey> {
    if let Some(known) = ssh_keys::find(tx, caller.user.id.as_str(), &key.fingerprint)? {
        return Ok(known);
    }
    let owner = caller.user.owner();
    if ssh_keys::count(tx, owner.scope())? >= ssh_keys::MAX_PER_SCOPE {
        let message = format!("there are {} saved keys, which is the limit; remove one first", ssh_keys::MAX_PER_SCOPE);
        return Err(Error::conflict("too_many_ssh_keys", message));
    }
    let total = ssh_keys::total_bytes(tx, owner.scope())? + key.public_key.len() as u64;
    access::check_key_bytes(cluster_keys::longest_bytes(tx, owner.scope())?, total)?;
    let saved = SshKey {
        id: SshKeyId::fresh(tx.ids()),
        owner,
        name: name.unwrap_or(&caller.user.email).to_owned(),
        public_key: key.public_key.clone(),
        fingerprint: key.fingerprint.clone(),
        created: tx.now(),
    };
    ssh_keys::insert(tx, &saved)?;
    let added = SshKeyEvent::Added { fingerprint: saved.fingerprint.clone() };
    tx.record(saved.owner.scope(), Event::SshKey(saved.id.clone(), added))?;
    Ok(saved)
}
