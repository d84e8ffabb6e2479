//! Clusters and their instances: what they are and what the rules allow with them.

use crate::capacity::Shape;
use crate::ends::End;
use crate::ids::{ClusterId, InstanceId};
use crate::lifecycle::State;
use crate::storage::{Attachment, Volume, VolumeState};
use crate::users::Owner;
use crate::{Money, Refused, Time, images};

/// How many nodes a cluster may have; all of them are made, shown and removed together.
pub const MAX_NODES: u32 = 1000;

/// How many jobs may run on a cluster at the same time at most.
pub const MAX_JOBS_PARALLEL: u32 = 1000;

/// So many dead nodes are told by name; of a thousand nobody would read the list.
const TOLD_DEATHS: usize = 3;

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
    /// The container image as it was asked for, or none for the built-in one.
    pub container: Option<String>,
    /// The exact name of that image, once it is known: all nodes run it, for as long as they live.
    pub image: Option<String>,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    /// How many jobs may run on it at the same time.
    pub jobs_parallel: u32,
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

    /// Begins to restart all nodes, if nothing speaks against it. A cluster that failed can be restarted if all of its nodes
    /// were made and none was released: then their disks, addresses and capacity are still theirs. With a volume that failed
    /// none of them would come up again.
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

    /// This cluster after some of its nodes were observed to be dead. `nodes` are all of its nodes, the dead ones FAILED with
    /// their reasons. The others run on.
    pub fn lost_nodes(self, nodes: &[Instance], now: Time) -> Result<Self, Refused> {
        let dead = || nodes.iter().filter_map(|node| Some((node, node.state.reason()?)));
        let mut words: Vec<String> =
            dead().take(TOLD_DEATHS).map(|(node, why)| format!("node {} {why}", node.name())).collect();
        let more = dead().count().saturating_sub(TOLD_DEATHS);
        if more > 0 {
            words.push(format!("{more} more nodes are dead too"));
        }
        let reason = format!("{}. Restart the cluster to bring its nodes back, or destroy it", words.join("; "));
        self.moved(now, |state| state.die(&reason))
    }

    /// The image that has to be fetched for it; none if it is the built-in one.
    pub fn wanted_image(&self) -> Option<&str> {
        self.container.as_deref().filter(|container| *container != images::HOST)
    }

    /// The image that its nodes are started from. One from before exact names were kept has only what was asked for.
    pub fn image(&self) -> Option<&str> {
        self.image.as_deref().or(self.wanted_image())
    }

    /// Whether something went wrong with it.
    pub fn has_failed(&self) -> bool {
        self.state.reason().is_some()
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
    /// This instance after it was observed to be dead.
    pub fn died(mut self, end: End) -> Result<Self, Refused> {
        self.state = self.state.die(&end.words(self.shape.memory_bytes))?;
        Ok(self)
    }

    /// Its host name: the cluster's id and the node's number.
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
    fn a_cluster_names_its_dead_nodes() {
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
    fn what_was_released_cannot_be_restarted() {
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
