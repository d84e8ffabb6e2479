//! Events: what happened to which object, as a closed enum with typed data. The page `docs/events.md` is rendered from
//! these tables by their test.
//!
//! An event is stored and sent as its verb, the id of its object, and its data as JSON. That form is stable: fields are
//! only added, and a verb keeps its meaning. [`Event::parse`] ignores fields that this program does not know. Start
//! reading at [`Event`]; each noun has a file with the table of its verbs.

/// Makes the enum of the events of one noun of a table: when each is recorded, its verb, and its data.
macro_rules! verbs {
    ($(#[$about:meta])* $noun:ident {
        $($(#[doc = $when:literal])+ $verb:literal $variant:ident { $($(#[$attr:meta])* $field:ident: $type:ty),* $(,)? })+
    }) => {
        $(#[$about])*
        #[allow(missing_docs)]
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(tag = "verb", content = "data")]
        pub enum $noun {
            $($(#[doc = $when])+ #[serde(rename = $verb)] $variant { $($(#[$attr])* $field: $type),* },)+
        }

        impl $noun {
            /// Every verb, with when it is recorded.
            pub const VERBS: &[(&str, &str)] = &[$(($verb, concat!($($when),+))),+];

            /// Returns the verb, which is stored.
            pub fn verb(&self) -> &'static str {
                match self {
                    $($noun::$variant { .. } => $verb,)+
                }
            }
        }
    };
}

/// Makes the enum of all events of the nouns, each with the type of its id.
macro_rules! nouns {
    ($(#[doc = $about:literal] $noun:ident($id:ty, $verbs:ident),)+) => {
        /// Something that happened to an object.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = $about] $noun($id, $verbs),)+
        }

        impl Event {
            /// Every noun with its verbs, and when they are recorded.
            pub const NOUNS: &[(&str, &[(&str, &str)])] = &[$(($about, $verbs::VERBS)),+];

            /// Returns the verb, as `noun.verb`.
            pub fn verb(&self) -> &'static str {
                match self {
                    $(Event::$noun(_, event) => event.verb(),)+
                }
            }

            /// Returns the id of the object.
            pub fn object(&self) -> &str {
                match self {
                    $(Event::$noun(id, _) => id.as_str(),)+
                }
            }

            /// Returns the data as JSON; never a secret.
            pub fn data(&self) -> Value {
                match self {
                    $(Event::$noun(_, event) => data_of(event),)+
                }
            }

            /// The reverse of [`Event::verb`], [`Event::object`] and [`Event::data`]. Fails for what a newer program
            /// recorded and this one does not know.
            pub fn parse(verb: &str, object: &str, data: &Value) -> Result<Self, UnknownEvent> {
                $(if $verbs::VERBS.iter().any(|(known, _)| *known == verb) {
                    let id = object.parse().map_err(|_| UnknownEvent::Object(object.to_owned()))?;
                    return Ok(Event::$noun(id, read_data(verb, data)?));
                })+
                Err(UnknownEvent::Verb(verb.to_owned()))
            }
        }
    };
}

mod accounts;
mod clusters;
mod hosts;
mod jobs;
mod object_storage;
mod requests;
mod storage;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::ids::{ApiKeyId, BucketId, ClusterId, InstanceId, JobId, OrgId, RequestId, SshKeyId, UserId, VolumeId};

pub use accounts::{ApiKeyEvent, LoginEvent, ScopeEvent, SshKeyEvent, UserEvent};
pub use clusters::{Cause, ClusterEvent, InstanceEvent, InstanceStop};
pub use hosts::{GpuClearance, GpuEvent, HostEvent, RebootLosses, RestoreLosses};
pub use jobs::JobEvent;
pub use object_storage::{AccountEvent, BucketEvent, S3KeyEvent};
pub use requests::RequestEvent;
pub use storage::{KilledProcess, VolumeEvent};

nouns! {
    /// A cluster.
    Cluster(ClusterId, ClusterEvent),
    /// An instance.
    Instance(InstanceId, InstanceEvent),
    /// A volume.
    Volume(VolumeId, VolumeEvent),
    /// A request.
    Request(RequestId, RequestEvent),
    /// A job.
    Job(JobId, JobEvent),
    /// A user.
    User(UserId, UserEvent),
    /// An API key.
    ApiKey(ApiKeyId, ApiKeyEvent),
    /// Refused logins, of a known user or by what refused them.
    Login(String, LoginEvent),
    /// An SSH key.
    SshKey(SshKeyId, SshKeyEvent),
    /// An organization, or a user without one.
    Scope(String, ScopeEvent),
    /// The object storage of an organization.
    Account(OrgId, AccountEvent),
    /// An S3 key.
    S3Key(String, S3KeyEvent),
    /// A bucket.
    Bucket(BucketId, BucketEvent),
    /// A GPU, by the driver's id.
    Gpu(String, GpuEvent),
    /// A host, by name.
    Host(String, HostEvent),
}

/// Why a stored event is none of this program's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownEvent {
    /// There is no such verb.
    #[error("there is no verb {0}")]
    Verb(String),
    /// The object is not one of the kind that the verb has.
    #[error("{0} is no object of its verb")]
    Object(String),
    /// The data is not that of the verb.
    #[error("the data of {verb} cannot be read: {why}")]
    Data {
        /// The verb of the event.
        verb: String,
        /// What is wrong with the data.
        why: String,
    },
}

/// The data of an event, without its verb.
fn data_of(event: &impl Serialize) -> Value {
    let mut whole = serde_json::to_value(event).expect("events have text keys and no fractions");
    whole["data"].take()
}

fn read_data<T: DeserializeOwned>(verb: &str, data: &Value) -> Result<T, UnknownEvent> {
    serde_json::from_value(json!({ "verb": verb, "data": data }))
        .map_err(|error| UnknownEvent::Data { verb: verb.to_owned(), why: error.to_string() })
}
