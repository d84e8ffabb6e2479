//! The states of a cluster and of each of its instances, and every transition between them.
//!
//! Clusters and instances share one state machine; the rules that apply to clusters only are in [`crate::clusters`].
//! `docs/states/cluster.md` is rendered from this file by its test.

use crate::Refused;

/// The state of a cluster or an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for capacity; holds nothing.
    Pending,
    /// Has its capacity; its instances are being created.
    Provisioning,
    /// Its instances exist and get their keys and names.
    Configuring,
    /// Observed to run.
    Running,
    /// Its nodes are being restarted; they keep their disks and addresses.
    Restarting,
    /// Is being removed.
    Destroying,
    /// Observed to be gone.
    Destroyed,
    /// Something went wrong. A cluster whose creation failed has released its capacity. A cluster of which a node died
    /// keeps it, and its other nodes keep running, until it is restarted or destroyed.
    Failed {
        /// What went wrong, for the user.
        reason: String,
    },
}

impl State {
    /// Returns the name that the API shows and the database stores.
    pub fn name(&self) -> &'static str {
        match self {
            State::Pending => "PENDING",
            State::Provisioning => "PROVISIONING",
            State::Configuring => "CONFIGURING",
            State::Running => "RUNNING",
            State::Restarting => "RESTARTING",
            State::Destroying => "DESTROYING",
            State::Destroyed => "DESTROYED",
            State::Failed { .. } => "FAILED",
        }
    }

    /// The reverse of [`State::name`]; only FAILED uses `reason`.
    pub fn from_name(name: &str, reason: Option<String>) -> Option<Self> {
        Some(match name {
            "PENDING" => State::Pending,
            "PROVISIONING" => State::Provisioning,
            "CONFIGURING" => State::Configuring,
            "RUNNING" => State::Running,
            "RESTARTING" => State::Restarting,
            "DESTROYING" => State::Destroying,
            "DESTROYED" => State::Destroyed,
            "FAILED" => State::Failed { reason: reason.unwrap_or_default() },
            _ => return None,
        })
    }

    /// Returns why it failed, if it did.
    pub fn reason(&self) -> Option<&str> {
        match self {
            State::Failed { reason } => Some(reason),
            State::Pending | State::Provisioning | State::Configuring | State::Running => None,
            State::Restarting | State::Destroying | State::Destroyed => None,
        }
    }

    /// Its capacity was taken; the creation begins.
    pub fn provision(self) -> Result<Self, Refused> {
        match self {
            State::Pending => Ok(State::Provisioning),
            State::Provisioning | State::Configuring | State::Running | State::Restarting => self.refuse("provision"),
            State::Destroying | State::Destroyed | State::Failed { .. } => self.refuse("provision"),
        }
    }

    /// The instances exist; their setup begins.
    pub fn configure(self) -> Result<Self, Refused> {
        match self {
            State::Provisioning => Ok(State::Configuring),
            State::Pending | State::Configuring | State::Running | State::Restarting => self.refuse("configure"),
            State::Destroying | State::Destroyed | State::Failed { .. } => self.refuse("configure"),
        }
    }

    /// It was observed to run.
    pub fn run(self) -> Result<Self, Refused> {
        match self {
            State::Configuring | State::Restarting => Ok(State::Running),
            State::Pending | State::Provisioning | State::Running => self.refuse("run"),
            State::Destroying | State::Destroyed | State::Failed { .. } => self.refuse("run"),
        }
    }

    /// The nodes restart. [`crate::clusters::Cluster::begin_restart`] checks whether a failed cluster has nodes to
    /// restart.
    pub fn restart(self) -> Result<Self, Refused> {
        match self {
            State::Running | State::Failed { .. } => Ok(State::Restarting),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => {
                Err(Refused::ClusterBusy { state: self.name() })
            }
            State::Destroying | State::Destroyed => Err(Refused::ClusterGone),
        }
    }

    /// Its destruction begins. Besides RUNNING this is allowed while it waits for capacity and after a failure, which
    /// the original API does not allow and so leaves without a way out. Work that has changed nothing yet is aborted
    /// first, which counts as a failure.
    pub fn destroy(self) -> Result<Self, Refused> {
        match self {
            State::Running | State::Pending | State::Failed { .. } => Ok(State::Destroying),
            State::Provisioning | State::Configuring | State::Restarting => {
                Err(Refused::ClusterBusy { state: self.name() })
            }
            State::Destroying | State::Destroyed => Err(Refused::ClusterGone),
        }
    }

    /// It was observed to be gone.
    pub fn gone(self) -> Result<Self, Refused> {
        match self {
            State::Destroying => Ok(State::Destroyed),
            State::Pending | State::Provisioning | State::Configuring | State::Running => self.refuse("gone"),
            State::Restarting | State::Destroyed | State::Failed { .. } => self.refuse("gone"),
        }
    }

    /// The work on it failed.
    pub fn fail(self, reason: &str) -> Result<Self, Refused> {
        match self {
            State::Pending | State::Provisioning | State::Configuring | State::Restarting | State::Destroying => {
                Ok(State::Failed { reason: reason.to_owned() })
            }
            State::Running | State::Destroyed | State::Failed { .. } => self.refuse("fail"),
        }
    }

    /// It was observed to be dead without being asked to end. A failed cluster may lose another node.
    pub fn die(self, reason: &str) -> Result<Self, Refused> {
        match self {
            State::Running | State::Failed { .. } => Ok(State::Failed { reason: reason.to_owned() }),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => self.refuse("die"),
            State::Destroying | State::Destroyed => self.refuse("die"),
        }
    }

    /// Its data was restored on another host, where nothing of it exists.
    pub fn leave_behind(self, reason: &str) -> Result<Self, Refused> {
        match self {
            State::Pending | State::Provisioning | State::Configuring | State::Running | State::Restarting => {
                Ok(State::Failed { reason: reason.to_owned() })
            }
            State::Destroying | State::Failed { .. } => Ok(State::Failed { reason: reason.to_owned() }),
            State::Destroyed => self.refuse("leave_behind"),
        }
    }

    fn refuse(&self, transition: &'static str) -> Result<Self, Refused> {
        Err(Refused::Transition { from: self.name(), transition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendering::{Transition, render_states};

    #[test]
    fn cluster_transitions_are_documented() {
        let failed = State::Failed { reason: "why".into() };
        let states = [
            State::Pending,
            State::Provisioning,
            State::Configuring,
            State::Running,
            State::Restarting,
            State::Destroying,
            State::Destroyed,
            failed,
        ];
        let transitions: [Transition<State>; 9] = [
            ("provision", State::provision),
            ("configure", State::configure),
            ("run", State::run),
            ("restart", State::restart),
            ("destroy", State::destroy),
            ("gone", State::gone),
            ("fail", |state| state.fail("why")),
            ("die", |state| state.die("why")),
            ("leave_behind", |state| state.leave_behind("why")),
        ];
        render_states("cluster", &states, State::name, &transitions);
    }

    #[test]
    fn cluster_state_names_parse_back() {
        for name in
            ["PENDING", "PROVISIONING", "CONFIGURING", "RUNNING", "RESTARTING", "DESTROYING", "DESTROYED", "FAILED"]
        {
            assert_eq!(State::from_name(name, None).map(|state| state.name()), Some(name));
        }
        assert_eq!(State::from_name("running", None), None);
    }
}
