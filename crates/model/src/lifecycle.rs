//! The states of a cluster and of each of its instances, and every transition between them.
//!
//! Clusters and instances live through the same states, so there is one machine for both; what a cluster must check besides
//! is in [`crate::clusters`]. `docs/states/cluster.md` is rendered from this file by its test.

use crate::Refused;

/// Where a cluster or an instance is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for capacity; holds nothing.
    Pending,
    /// Has its capacity; its instances are being made.
    Provisioning,
    /// Its instances exist and are being given keys and names.
    Configuring,
    /// Observed to run.
    Running,
    /// Its nodes are being restarted, with their disks and addresses kept.
    Restarting,
    /// Is being removed.
    Destroying,
    /// Observed to be gone.
    Destroyed,
    /// Something went wrong. A cluster whose making failed has released what it took; one of which a node died keeps it, and
    /// its other nodes run on, until it is restarted or destroyed.
    Failed {
        /// What went wrong, for a person.
        reason: String,
    },
}

impl State {
    /// The name that the API shows and the database keeps.
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

    /// The reverse of [`State::name`]; `reason` matters to FAILED only.
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

    /// Why it failed, if it has.
    pub fn reason(&self) -> Option<&str> {
        match self {
            State::Failed { reason } => Some(reason),
            State::Pending | State::Provisioning | State::Configuring | State::Running => None,
            State::Restarting | State::Destroying | State::Destroyed => None,
        }
    }

    /// Capacity has been taken; the making begins.
    pub fn provision(self) -> Result<Self, Refused> {
        match self {
            State::Pending => Ok(State::Provisioning),
            State::Provisioning | State::Configuring | State::Running | State::Restarting => self.refuse("provision"),
            State::Destroying | State::Destroyed | State::Failed { .. } => self.refuse("provision"),
        }
    }

    /// The instances exist; they are being set up.
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

    /// The nodes are going down and up again. Whether a failed cluster has nodes to restart is for the cluster to say.
    pub fn restart(self) -> Result<Self, Refused> {
        match self {
            State::Running | State::Failed { .. } => Ok(State::Restarting),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => {
                Err(Refused::ClusterBusy { state: self.name() })
            }
            State::Destroying | State::Destroyed => Err(Refused::ClusterGone),
        }
    }

    /// Somebody wants it gone. Besides RUNNING this is allowed while it only waits for capacity and after a failure: the
    /// original leaves no way out of those two. Work that has changed nothing yet is given up first, which counts as a failure.
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

    /// The work on it could not be done.
    pub fn fail(self, reason: &str) -> Result<Self, Refused> {
        match self {
            State::Pending | State::Provisioning | State::Configuring | State::Restarting | State::Destroying => {
                Ok(State::Failed { reason: reason.to_owned() })
            }
            State::Running | State::Destroyed | State::Failed { .. } => self.refuse("fail"),
        }
    }

    /// It was observed to be dead without having been asked to end. A failed cluster may lose one more of its nodes.
    pub fn die(self, reason: &str) -> Result<Self, Refused> {
        match self {
            State::Running | State::Failed { .. } => Ok(State::Failed { reason: reason.to_owned() }),
            State::Pending | State::Provisioning | State::Configuring | State::Restarting => self.refuse("die"),
            State::Destroying | State::Destroyed => self.refuse("die"),
        }
    }

    fn refuse(&self, transition: &'static str) -> Result<Self, Refused> {
        Err(Refused::Transition { from: self.name(), transition })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendering::{Transition, render};

    #[test]
    fn the_table_of_transitions_is_documented() {
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
        let transitions: [Transition<State>; 8] = [
            ("provision", State::provision),
            ("configure", State::configure),
            ("run", State::run),
            ("restart", State::restart),
            ("destroy", State::destroy),
            ("gone", State::gone),
            ("fail", |state| state.fail("why")),
            ("die", |state| state.die("why")),
        ];
        render("cluster", &states, State::name, &transitions);
    }

    #[test]
    fn names_come_back() {
        for name in
            ["PENDING", "PROVISIONING", "CONFIGURING", "RUNNING", "RESTARTING", "DESTROYING", "DESTROYED", "FAILED"]
        {
            assert_eq!(State::from_name(name, None).map(|state| state.name()), Some(name));
        }
        assert_eq!(State::from_name("running", None), None);
    }
}
