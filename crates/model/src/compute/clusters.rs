//! Clusters and their instances: their data and the rules that allow a change.

use crate::capacity::Shape;
use crate::ids::{ClusterId, InstanceId};
use crate::instance_end::End;
use crate::lifecycle::State;
use crate::storage::{Attachment, Volume, VolumeState};
use crate::users::Owner;
use crate::{Money, Refused, Time, images};

/// How many nodes a cluster may have; they are created, shown and removed together.
pub const MAX_NODES: u32 = 1000;

/// How many jobs may run on a cluster at the same time.
pub const MAX_JOBS_PARALLEL: u32 = 1000;

/// How many dead nodes are listed by name; a longer list would not be read.
const MAX_LISTED_DEATHS: usize = 3;

/// A group of equal instances that is created, restarted and destroyed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub id: ClusterId,
    /// Unique among the owner's live clusters.
    pub name: String,
    pub owner: Owner,
    /// The name of the type of its instances.
    pub instance_type: String,
    pub num_nodes: u32,
    /// What the whole cluster costs per hour.
    pub hourly_rate: Money,
    /// The container image as the caller named it, or `None` for the built-in one.
    pub container: Option<String>,
    /// The exact name of that image, once it is resolved. All nodes run it for their whole life.
    pub image: Option<String>,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    /// How many jobs may run on it at the same time.
    pub jobs_parallel: u32,
    pub state: State,
    /// When it entered its state.
    pub since: Time,
    pub created: Time,
    /// Counts the changes; a save with an old version lost a race.
    pub version: i64,
}

impl Cluster {
    /// Returns this cluster in the state that `transition` leads to.
    pub fn moved(
        mut self,
        now: Time,
        transition: impl FnOnce(State) -> Result<State, Refused>,
    ) -> Result<Self, Refused> {
        self.state = transition(self.state)?;
        self.since = now;
        Ok(self)
    }

    /// Begins the destruction, unless a rule refuses it.
    pub fn begin_destroy(self, attachment: Option<&Attachment>, now: Time) -> Result<Self, Refused> {
        if self.deletion_protection {
            return Err(Refused::DeletionProtected { what: "cluster", id: self.id.to_string() });
        }
        if attachment.is_some_and(Attachment::is_busy) {
            return Err(Refused::AttachmentBusy);
        }
        self.moved(now, State::destroy)
    }

    /// Begins to restart all nodes, unless a rule refuses it. A failed cluster can be restarted if all of its nodes
    /// were created and none was released: then they still have their disks, addresses and capacity. With a failed
    /// volume no node would start again.
    pub fn begin_restart(
        self,
        nodes: &[Instance],
        attachment: Option<&Attachment>,
        volume: Option<&Volume>,
        now: Time,
    ) -> Result<Self, Refused> {
        if attachment.is_some_and(Attachment::is_busy) {
            return Err(Refused::AttachmentBusy);
        }
        if let Some(Volume { id, state: VolumeState::Failed { reason, .. }, .. }) = volume {
            return Err(Refused::AttachedStorageFailed { volume: id.to_string(), reason: reason.clone() });
        }
        if self.has_failed() && !nodes.iter().all(|node| node.holds_capacity && node.private_ip.is_some()) {
            return Err(Refused::ClusterNotRestartable);
        }
        self.moved(now, State::restart)
    }

    /// Returns this cluster after some of its nodes were observed to be dead. `nodes` are all of its nodes, the dead
    /// ones FAILED with their reasons. The other nodes keep running.
    pub fn lost_nodes(self, nodes: &[Instance], now: Time) -> Result<Self, Refused> {
        let dead = || nodes.iter().filter_map(|node| Some((node, node.state.reason()?)));
        let mut deaths: Vec<String> =
            dead().take(MAX_LISTED_DEATHS).map(|(node, why)| format!("node {} {why}", node.name())).collect();
        let more = dead().count().saturating_sub(MAX_LISTED_DEATHS);
        if more > 0 {
            deaths.push(format!("{more} more nodes are dead too"));
        }
        let reason = format!("{}. Restart the cluster to bring its nodes back, or destroy it", deaths.join("; "));
        self.moved(now, |state| state.die(&reason))
    }

    /// Returns the image that must be fetched, or `None` for the built-in one.
    pub fn wanted_image(&self) -> Option<&str> {
        self.container.as_deref().filter(|container| *container != images::HOST)
    }

    /// Returns the image that its nodes start from. A cluster from before exact names were stored has only the name
    /// that the caller gave.
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref().or(self.wanted_image())
    }

    /// Returns whether it is FAILED.
    pub fn has_failed(&self) -> bool {
        self.state.reason().is_some()
    }

    /// Refuses unless the cluster is RUNNING.
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

/// One instance of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    pub cluster: ClusterId,
    /// Its node number in the cluster, from 0.
    pub node: u32,
    pub state: State,
    /// What it takes from the host.
    pub shape: Shape,
    /// The GPUs it owns, by the driver's ids.
    pub gpus: Vec<String>,
    /// Whether it holds its capacity. Set when it is placed, cleared only when it is observed to be gone.
    pub holds_capacity: bool,
    /// How often it was asked to start; the driver restarts an instance whose observed number is lower.
    pub boot: u32,
    /// Its address in the cluster, once it has one.
    pub private_ip: Option<String>,
}

impl Instance {
    /// Returns this instance after it was observed to be dead.
    pub fn died(mut self, end: End) -> Result<Self, Refused> {
        self.state = self.state.die(&end.describe(self.shape.memory_bytes))?;
        Ok(self)
    }

    /// Returns this instance after its data was restored on another host: nothing of it exists there, so that it cannot
    /// be restarted and holds nothing.
    pub fn left_behind(mut self, reason: &str) -> Result<Self, Refused> {
        self.state = self.state.leave_behind(reason)?;
        self.holds_capacity = false;
        self.gpus.clear();
        self.private_ip = None;
        Ok(self)
    }

    /// Returns its host name: the cluster's id and the node's number.
    pub fn name(&self) -> String {
        format!("{}-{}", self.cluster, self.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(state: State) -> Cluster {
        Cluster {
            id: "c-000000000001".parse().unwrap(),
            name: "heron".into(),
            owner: Owner { user: "u-000000000001".parse().unwrap(), org: None },
            instance_type: "1xCPU".into(),
            num_nodes: 5,
            hourly_rate: Money::from_micros(0),
            container: None,
            image: None,
            jobs_parallel: 1,
            deletion_protection: false,
            state,
            since: Time::ZERO,
            created: Time::ZERO,
            version: 0,
        }
    }

    fn nodes() -> Vec<Instance> {
        let node = |node: u32| Instance {
            id: format!("i-{node:012}").parse().unwrap(),
            cluster: "c-000000000001".parse().unwrap(),
            node,
            state: State::Running,
            shape: Shape { cpu_milli: 1000, memory_bytes: 1 << 30, gpus: 0, gpu_model: None },
            gpus: Vec::new(),
            holds_capacity: true,
            boot: 1,
            private_ip: Some("10.64.0.1".into()),
        };
        (0..5).map(node).collect()
    }

    #[test]
    fn failed_cluster_names_dead_nodes() {
        let mut nodes = nodes();
        nodes[1] = nodes[1].clone().died(End::OutOfMemory).unwrap();
        let failed = cluster(State::Running).lost_nodes(&nodes, Time::ZERO).unwrap();
        assert_eq!(
            failed.state.reason(),
            Some(
                "node c-000000000001-1 ran out of memory (limit 1.0 GiB) and was stopped. \
                 Restart the cluster to bring its nodes back, or destroy it"
            )
        );
        let all: Vec<_> = nodes.into_iter().map(|node| node.died(End::Lost).unwrap()).collect();
        let failed = failed.lost_nodes(&all, Time::ZERO).unwrap();
        assert!(failed.state.reason().unwrap().contains("; 2 more nodes are dead too. "), "{failed:?}");
    }

    #[test]
    fn released_cluster_cannot_restart() {
        let failed = || cluster(State::Failed { reason: "why".into() });
        assert_eq!(failed().begin_restart(&nodes(), None, None, Time::ZERO).unwrap().state, State::Restarting);
        let mut released = nodes();
        released[4].holds_capacity = false;
        assert_eq!(failed().begin_restart(&released, None, None, Time::ZERO), Err(Refused::ClusterNotRestartable));
        let mut unmade = nodes();
        unmade[0].private_ip = None;
        assert_eq!(failed().begin_restart(&unmade, None, None, Time::ZERO), Err(Refused::ClusterNotRestartable));
        let busy = cluster(State::Provisioning).begin_restart(&nodes(), None, None, Time::ZERO);
        assert_eq!(busy, Err(Refused::ClusterBusy { state: "PROVISIONING" }));
    }
}
