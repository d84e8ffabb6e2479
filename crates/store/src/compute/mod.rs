//! Rows of what runs on hosts: clusters, their instances and keys, volumes, and the GPUs of the host.
//!
//! Start reading at [`clusters`]; [`instances`] says how much of the host's capacity they hold.

/// The condition under which a saved key `k` of the user `u` opens the clusters of its scope: the user is not disabled
/// and has not left the organization.
macro_rules! saved_key_opens {
    () => {
        "u.disabled = 0 and (k.org_id is null or k.org_id = u.org_id)"
    };
}

/// The condition under which a key with the fingerprint `f`, given to the cluster `c` of the user `u`, opens it: the
/// creator has access, and the key is not one that a user without access saved.
macro_rules! given_key_opens {
    () => {
        "u.disabled = 0 and (c.org_id is null or c.org_id = u.org_id) and not exists (\
         select 1 from ssh_keys s join users m on m.id = s.user_id where s.fingerprint = f.fingerprint \
         and s.scope = c.scope and (m.disabled = 1 or s.org_id <> coalesce(m.org_id, '')))"
    };
}

pub mod attachments;
pub mod cluster_access;
pub mod cluster_keys;
pub mod clusters;
pub mod gpus;
pub mod host;
pub mod instances;
pub mod storage;
