//! The operations that callers invoke, a module for each noun. Each operation authorizes, decides and commits in one
//! transaction.
//!
//! Start reading at [`clusters`].

pub mod clusters;
pub mod host;
pub mod jobs;
pub mod loopback_proxy;
pub mod object_storage;
pub mod requests;
pub mod ssh;
pub mod storage;

mod accounts;
mod explain_jobs;

use serde::{Deserialize, Serialize};
use tarn_model::ids::{ClusterId, InstanceId, RequestId};
use tarn_model::names;
use tarn_model::users::{Owner, User};
use tarn_store::{OwnerFilter, Tx};

use crate::{Caller, Result};

pub use accounts::{admin, limits, users};
pub use ssh::{gateway, keys as ssh_keys, prove as ssh_proofs};

/// The result of a call whose work continues in the background: with a cluster, a volume or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted<C = ClusterId, V = ()> {
    pub cluster: C,
    pub volume: V,
    /// The instances of a new cluster.
    pub instances: Vec<InstanceId>,
    /// The request to poll.
    pub request: RequestId,
    /// What happens now, for people.
    pub message: String,
}

/// What the caller created or, with `include_org`, everything of the caller's organization.
fn whose(caller: &Caller, include_org: bool) -> OwnerFilter<'_> {
    let scope = scope_of(&caller.user);
    if include_org { OwnerFilter::Scope(scope) } else { OwnerFilter::User { user: caller.user.id.as_str(), scope } }
}

/// The scope of what a user creates.
fn scope_of(user: &User) -> &str {
    user.org.as_ref().map_or(user.id.as_str(), |org| org.as_str())
}

/// The owner of a request: the caller, in the organization of the object that the request is about.
fn request_owner(caller: &Caller, about: &Owner) -> Owner {
    Owner { user: caller.user.id.clone(), org: about.org.clone() }
}

/// Generates a free name, with a suffix if the plain one is taken.
fn free_name(tx: &mut Tx<'_>, is_taken: impl Fn(&mut Tx<'_>, &str) -> Result<bool>) -> Result<String> {
    let plain = names::generate(tx.ids(), false);
    if is_taken(tx, &plain)? {
        Ok(format!("{plain}-{}", &RequestId::fresh(tx.ids()).as_str()[2..8]))
    } else {
        Ok(plain)
    }
}
