//! What callers can ask for, a file per noun. Each operation authorizes, decides and commits in one transaction.

pub mod admin;
pub mod clusters;
pub mod requests;
pub mod ssh;
pub mod ssh_keys;
pub mod storage;
pub mod users;

mod attach_storage;
mod create_cluster;

use serde::{Deserialize, Serialize};
use tarn_model::ids::{ClusterId, InstanceId, RequestId, VolumeId};
use tarn_model::users::User;
use tarn_store::Whose;

use crate::Caller;

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
fn whose(caller: &Caller, include_org: bool) -> Whose<'_> {
    let scope = scope(&caller.user);
    if include_org { Whose::Scope(scope) } else { Whose::User { user: caller.user.id.as_str(), scope } }
}

/// The scope of what a user creates.
fn scope(user: &User) -> &str {
    user.org.as_ref().map_or(user.id.as_str(), |org| org.as_str())
}
