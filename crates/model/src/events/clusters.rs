//! The events of clusters and of their instances.

use serde::{Deserialize, Serialize};

use crate::clusters::Instance;
use crate::ids::{ClusterId, UserId};
use crate::instance_end::End;

verbs! {
    /// What happens to a cluster.
    ClusterEvent {
        /// A user created it; it waits for capacity.
        "cluster.create" Created { name: String, #[serde(rename = "type")] instance_type: String, nodes: u32 }
        /// A user changed its name or its deletion protection.
        "cluster.edit" Edited { name: String, deletion_protection: bool }
        /// It has its capacity.
        "cluster.placed" Placed { state: String }
        /// Its image is here, under this exact name.
        "cluster.image_ready" ImageReady { image: String }
        /// Its instances were created.
        "cluster.provisioned" Provisioned { state: String }
        /// All of its instances were observed to run.
        "cluster.running" Running { state: String }
        /// Its restart has begun. The cause is present if the engine began it.
        "cluster.restart" RestartBegun {
            name: String,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cause: Option<Cause>,
        }
        /// All of its instances were observed to run again.
        "cluster.restarted" Restarted { state: String }
        /// It failed, for this reason.
        "cluster.failed" Failed { reason: Option<String> }
        /// Its destruction has begun.
        "cluster.destroy" DestroyBegun { name: String }
        /// Its instances were observed to be gone.
        "cluster.destroyed" Destroyed { state: String }
        /// A volume was observed to be mounted on its instances. The state is present if they were restarted for it.
        "storage.attached" VolumeAttached {
            #[serde(default, skip_serializing_if = "Option::is_none")]
            state: Option<String>,
        }
        /// A volume was observed to be no longer mounted on its instances.
        "storage.detached" VolumeDetached {
            #[serde(default, skip_serializing_if = "Option::is_none")]
            state: Option<String>,
        }
        /// A volume could not be attached or detached, and all is as before.
        "storage.attachment_unchanged" AttachmentUnchanged {
            #[serde(default, skip_serializing_if = "Option::is_none")]
            state: Option<String>,
        }
    }
}

verbs! {
    /// What happens to an instance.
    InstanceEvent {
        /// It was observed to run in this boot.
        "instance.started" Started { cluster: ClusterId, name: String, boot: u32 }
        /// This boot and all earlier ones were observed to have ended, because the engine ended them or the host did.
        "instance.stopped" Stopped { cluster: ClusterId, name: String, boot: u32, end: InstanceStop }
        /// It was observed to be dead, although it should run.
        "instance.died" Died { cause: Cause, cluster: ClusterId, name: String }
        /// It had no row for the grace period, and was removed.
        "machine.orphan_removed" OrphanRemoved {}
        /// A user logged in to it with an SSH key.
        "ssh.login" LoggedIn { fingerprint: String, from: String }
        /// A session on it was ended, because the access of its key ended.
        "ssh.end" SessionEnded { user: UserId, fingerprint: String, reason: String }
    }
}

impl InstanceEvent {
    /// The instance was observed to run in its current boot.
    pub fn started(instance: &Instance) -> Self {
        InstanceEvent::Started { cluster: instance.cluster.clone(), name: instance.name(), boot: instance.boot }
    }

    /// The current boot of the instance and all earlier ones were observed to have ended.
    pub fn stopped(instance: &Instance, end: InstanceStop) -> Self {
        let (cluster, name) = (instance.cluster.clone(), instance.name());
        InstanceEvent::Stopped { cluster, name, boot: instance.boot, end }
    }
}

/// Why a boot of an instance ended that did not die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceStop {
    /// The engine started it again.
    Restart,
    /// The engine removed it.
    Destroy,
    /// The host was restarted.
    MachineRebooted,
    /// The data of the engine was restored on another host, where it does not exist.
    Restore,
}

/// Why an instance ended, stored by [`End::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cause(pub End);

impl From<Cause> for String {
    fn from(cause: Cause) -> Self {
        cause.0.name().to_owned()
    }
}

impl TryFrom<String> for Cause {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        End::from_name(&name).map(Cause).ok_or_else(|| format!("there is no cause {name}"))
    }
}
