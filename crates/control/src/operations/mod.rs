//! What callers can ask for, a file per noun. Each operation authorizes, decides and commits in one transaction.

pub mod admin;
pub mod clusters;
pub mod gateway;
pub mod host;
pub mod jobs;
pub mod limits;
pub mod loopback_proxy;
pub mod object_storage;
pub mod requests;
pub mod ssh;
pub mod ssh_keys;
pub mod storage;
pub mod users;

mod attach_storage;
mod create_cluster;
mod explain_jobs;
mod pool;
mod withdraw;

use serde::{Deserialize, Serialize};
use tarn_model::ids::{ClusterId, InstanceId, RequestId, VolumeId};
use tarn_model::names;
use tarn_model::users::{Owner, User};
use tarn_store::{OwnerFilter, Tx};

use crate::{Caller, Result};

/// The answer to a call whose work goes on in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The cluster it concerns.
    pub cluster: Option<ClusterId>,
    /// The volume it concerns.
    pub volume: Option<VolumeId>,
    /// The instances that a new cluster will have.
    pub instances: Vec<InstanceId>,
    /// The request to poll.
    pub request: RequestId,
    /// What happens now, for a person.
    pub message: String,
}

/// What a caller created or, with `include_org`, everything of his organization.
fn whose(caller: &Caller, include_org: bool) -> OwnerFilter<'_> {
    let scope = scope(&caller.user);
    if include_org { OwnerFilter::Scope(scope) } else { OwnerFilter::User { user: caller.user.id.as_str(), scope } }
}

/// The scope of what a user creates.
fn scope(user: &User) -> &str {
    user.org.as_ref().map_or(user.id.as_str(), |org| org.as_str())
}

/// Whose a request is that a caller makes about something: his own, in the organization of the thing.
fn asked_by(caller: &Caller, about: &Owner) -> Owner {
    Owner { user: caller.user.id.clone(), org: about.org.clone() }
}

/// Makes up a name that is free, with a suffix if the plain one is taken.
fn free_name(tx: &mut Tx<'_>, is_taken: impl Fn(&mut Tx<'_>, &str) -> Result<bool>) -> Result<String> {
    let plain = names::generate(tx.ids(), false);
    match is_taken(tx, &plain)? {
        false => Ok(plain),
        true => Ok(format!("{plain}-{}", &RequestId::fresh(tx.ids()).as_str()[2..8])),
    }
}
