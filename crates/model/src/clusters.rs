//! Clusters and their instances: what they are and what the rules allow with them.

use crate::capacity::Shape;
use crate::ids::{ClusterId, InstanceId};
use crate::lifecycle::State;
use crate::storage::Attachment;
use crate::users::Owner;
use crate::{Money, Refused, Time};

/// How many nodes a cluster may have; all of them are made, shown and removed together.
pub const MAX_NODES: u32 = 1000;

/// A group of equal instances that is made, restarted and destroyed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its id.
    pub id: ClusterId,
    /// Its name, unique among the owner's live clusters.
    pub name: String,
    /// Whose it is.
    pub owner: Owner,
    /// The name of the type of its instances.
    pub instance_type: String,
    /// How many instances it has.
    pub num_nodes: u32,
    /// What all of it costs per hour.
    pub hourly_rate: Money,
    /// The container image, or none for the driver's default.
    pub container: Option<String>,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    /// Where it is in its life.
    pub state: State,
    /// Since when it is there.
    pub since: Time,
    /// When it was asked for.
    pub created: Time,
    /// Counts the changes; a save with an old one is a lost race.
    pub version: i64,
}

impl Cluster {
    /// This cluster in the state that `transition` leads to.
    pub fn moved(
        mut self,
        now: Time,
        transition: impl FnOnce(State) -> Result<State, Refused>,
    ) -> Result<Self, Refused> {
        self.state = transition(self.state)?;
        self.since = now;
        Ok(self)
    }

    /// Begins the destruction, if nothing speaks against it.
    pub fn begin_destroy(self, attachment: Option<&Attachment>, now: Time) -> Result<Self, Refused> {
        if self.deletion_protection {
            return Err(Refused::DeletionProtected { what: "cluster", id: self.id.to_string() });
        }
        if attachment.is_some_and(Attachment::is_busy) {
            return Err(Refused::AttachmentBusy);
        }
        self.moved(now, State::destroy)
    }

    /// Refuses unless the cluster runs.
    pub fn must_run(&self) -> Result<(), Refused> {
        match self.state {
            State::Running => Ok(()),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => {
                Err(Refused::ClusterNotRunning { state: self.state.name() })
            }
            State::Failed { .. } => Err(Refused::ClusterNotRunning { state: self.state.name() }),
            State::Destroying | State::Destroyed => Err(Refused::ClusterGone),
        }
    }
}

/// One machine of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub id: InstanceId,
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// Its number in the cluster, from 0.
    pub node: u32,
    /// Where it is in its life.
    pub state: State,
    /// What it takes from the machine.
    pub shape: Shape,
    /// The GPUs it owns, by the driver's ids.
    pub gpus: Vec<String>,
    /// Whether it holds its share of the capacity. Set when it is placed, cleared only when it is observed to be gone.
    pub holds_capacity: bool,
    /// How often it was asked to start; the driver restarts an instance whose observed number is lower.
    pub boot: u32,
    /// Its address inside the cluster, once it has one.
    pub private_ip: Option<String>,
}

impl Instance {
    /// Its host name: the cluster's id and the node's number.
    pub fn name(&self) -> String {
        format!("{}-{}", self.cluster, self.node)
    }
}
