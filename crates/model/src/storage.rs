//! Volumes and their attachments to clusters. `docs/states/storage.md` is rendered from this file by its test.

use crate::clusters::Cluster;
use crate::ids::{ClusterId, VolumeId};
use crate::users::Owner;
use crate::{Refused, Time};

/// The largest volume that can be asked for at all, 10^15 bytes: far above any pool, far below any overflow.
pub const MAX_SIZE_GB: u64 = 1_000_000;

/// A volume may grow to so many times its first size.
pub const MAX_GROWTH: u64 = 100;

/// Where a volume is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// Asked for; nothing exists yet.
    Pending,
    /// Is being made.
    Creating,
    /// Can be used.
    Ready,
    /// Is being grown.
    Resizing {
        /// The size it will have.
        to_gb: u64,
    },
    /// Is being removed with its data.
    Destroying,
    /// Observed to be gone.
    Destroyed,
    /// Something went wrong.
    Failed {
        /// What went wrong, for a person.
        reason: String,
        /// What is left of it.
        left: Left,
    },
}

/// What is left of a volume that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it promises nothing of the pool any more.
    Nothing,
    /// Parts that are of no use, because it was never made to the end or is half removed. It can only be destroyed.
    Parts,
    /// Its data, as far as anybody knows: it was READY, and then was seen missing or damaged. It is READY again when it is seen
    /// to be right.
    Data,
}

impl VolumeState {
    /// The name that the API shows and the database keeps.
    pub fn name(&self) -> &'static str {
        match self {
            VolumeState::Pending => "PENDING",
            VolumeState::Creating => "CREATING",
            VolumeState::Ready => "READY",
            VolumeState::Resizing { .. } => "RESIZING",
            VolumeState::Destroying => "DESTROYING",
            VolumeState::Destroyed => "DESTROYED",
            VolumeState::Failed { .. } => "FAILED",
        }
    }

    /// The work on it begins.
    pub fn create(self) -> Result<Self, Refused> {
        match self {
            VolumeState::Pending => Ok(VolumeState::Creating),
            VolumeState::Creating | VolumeState::Ready | VolumeState::Resizing { .. } => self.refuse("create"),
            VolumeState::Destroying | VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("create"),
        }
    }

    /// It was observed to exist with its size.
    pub fn ready(self) -> Result<Self, Refused> {
        match self {
            VolumeState::Creating | VolumeState::Resizing { .. } => Ok(VolumeState::Ready),
            VolumeState::Pending | VolumeState::Ready => self.refuse("ready"),
            VolumeState::Destroying | VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("ready"),
        }
    }

    /// Growing begins.
    pub fn resize(self, to_gb: u64) -> Result<Self, Refused> {
        match self {
            VolumeState::Ready => Ok(VolumeState::Resizing { to_gb }),
            VolumeState::Pending | VolumeState::Creating | VolumeState::Resizing { .. } => {
                Err(Refused::StorageNotReady { state: self.name() })
            }
            VolumeState::Destroying | VolumeState::Destroyed => Err(Refused::StorageGone),
            VolumeState::Failed { reason, .. } => Err(Refused::StorageFailed { reason }),
        }
    }

    /// Somebody wants it gone.
    pub fn destroy(self) -> Result<Self, Refused> {
        match self {
            VolumeState::Ready | VolumeState::Failed { .. } => Ok(VolumeState::Destroying),
            VolumeState::Pending | VolumeState::Creating | VolumeState::Resizing { .. } => {
                Err(Refused::StorageNotReady { state: self.name() })
            }
            VolumeState::Destroying | VolumeState::Destroyed => Err(Refused::StorageGone),
        }
    }

    /// It was observed to be gone.
    pub fn gone(self) -> Result<Self, Refused> {
        match self {
            VolumeState::Destroying => Ok(VolumeState::Destroyed),
            VolumeState::Pending | VolumeState::Creating | VolumeState::Ready => self.refuse("gone"),
            VolumeState::Resizing { .. } | VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("gone"),
        }
    }

    /// The work on it could not be done.
    pub fn fail(self, reason: &str, left: Left) -> Result<Self, Refused> {
        match self {
            VolumeState::Pending | VolumeState::Creating | VolumeState::Destroying => {
                Ok(VolumeState::Failed { reason: reason.to_owned(), left })
            }
            VolumeState::Ready | VolumeState::Resizing { .. } => self.refuse("fail"),
            VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("fail"),
        }
    }

    /// It was observed to be missing or damaged, though nobody works on it.
    pub fn spoil(self, reason: &str) -> Result<Self, Refused> {
        match self {
            VolumeState::Ready | VolumeState::Resizing { .. } => {
                Ok(VolumeState::Failed { reason: reason.to_owned(), left: Left::Data })
            }
            VolumeState::Pending | VolumeState::Creating | VolumeState::Destroying => self.refuse("spoil"),
            VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("spoil"),
        }
    }

    /// It was observed to be right again.
    pub fn recover(self) -> Result<Self, Refused> {
        match self {
            VolumeState::Failed { left: Left::Data, .. } => Ok(VolumeState::Ready),
            VolumeState::Failed { left: Left::Nothing | Left::Parts, .. } => self.refuse("recover"),
            VolumeState::Pending | VolumeState::Creating | VolumeState::Ready => self.refuse("recover"),
            VolumeState::Resizing { .. } | VolumeState::Destroying | VolumeState::Destroyed => self.refuse("recover"),
        }
    }

    fn refuse(&self, transition: &'static str) -> Result<Self, Refused> {
        Err(Refused::Transition { from: self.name(), transition })
    }
}

/// Storage that outlives clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its id.
    pub id: VolumeId,
    /// Its name, unique among the owner's live volumes.
    pub name: String,
    /// Whose it is.
    pub owner: Owner,
    /// Its size in gigabytes of 10^9 bytes, as last observed.
    pub size_gb: u64,
    /// The size it was made with, which limits how far it may grow.
    pub first_size_gb: u64,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    /// Where it is in its life.
    pub state: VolumeState,
    /// Since when it is there.
    pub since: Time,
    /// When it was asked for.
    pub created: Time,
    /// Counts the changes; a save with an old one is a lost race.
    pub version: i64,
}

impl Volume {
    /// This volume in the state that `transition` leads to.
    pub fn moved(
        mut self,
        now: Time,
        transition: impl FnOnce(VolumeState) -> Result<VolumeState, Refused>,
    ) -> Result<Self, Refused> {
        self.state = transition(self.state)?;
        self.since = now;
        Ok(self)
    }

    /// Begins to attach the volume; the mount itself happens later, in the request.
    pub fn begin_attach(
        &self,
        cluster: &Cluster,
        held: Option<&Attachment>,
        live: bool,
        now: Time,
    ) -> Result<Attachment, Refused> {
        match &self.state {
            VolumeState::Ready => {}
            VolumeState::Pending | VolumeState::Creating | VolumeState::Resizing { .. } => {
                return Err(Refused::StorageNotReady { state: self.state.name() });
            }
            VolumeState::Destroying | VolumeState::Destroyed => return Err(Refused::StorageGone),
            VolumeState::Failed { reason, .. } => return Err(Refused::StorageFailed { reason: reason.clone() }),
        }
        if let Some(held) = held {
            return Err(Refused::ClusterHasStorage {
                cluster: cluster.id.to_string(),
                volume: held.volume.to_string(),
            });
        }
        cluster.must_run()?;
        Ok(Attachment {
            volume: self.id.clone(),
            cluster: cluster.id.clone(),
            state: AttachmentState::Attaching,
            live,
            since: now,
        })
    }

    /// Begins to grow the volume.
    pub fn begin_grow(self, to_gb: u64, now: Time) -> Result<Self, Refused> {
        let limit_gb = self.first_size_gb.saturating_mul(MAX_GROWTH).min(MAX_SIZE_GB);
        if to_gb < self.size_gb {
            return Err(Refused::StorageShrinks { has_gb: self.size_gb, wanted_gb: to_gb });
        }
        if to_gb > limit_gb {
            return Err(Refused::StorageGrowsTooFar { limit_gb });
        }
        self.moved(now, |state| state.resize(to_gb))
    }

    /// Begins the destruction, if nothing speaks against it.
    pub fn begin_destroy(self, attachments: &[Attachment], now: Time) -> Result<Self, Refused> {
        if self.deletion_protection {
            return Err(Refused::DeletionProtected { what: "storage", id: self.id.to_string() });
        }
        if !attachments.is_empty() {
            let clusters = attachments.iter().map(|held| held.cluster.to_string()).collect::<Vec<_>>().join(", ");
            return Err(Refused::StorageAttached { clusters });
        }
        self.moved(now, VolumeState::destroy)
    }
}

/// Where an attachment is in its life; one that ended has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// Is being mounted.
    Attaching,
    /// Observed to be mounted on every node.
    Attached,
    /// Is being unmounted.
    Detaching,
}

impl AttachmentState {
    /// The name that the API shows and the database keeps.
    pub fn name(self) -> &'static str {
        match self {
            AttachmentState::Attaching => "ATTACHING",
            AttachmentState::Attached => "ATTACHED",
            AttachmentState::Detaching => "DETACHING",
        }
    }
}

/// A volume on a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The volume.
    pub volume: VolumeId,
    /// The cluster; it has at most one.
    pub cluster: ClusterId,
    /// Where it is in its life.
    pub state: AttachmentState,
    /// Whether it comes or goes without a restart of the nodes.
    pub live: bool,
    /// Since when it is in this state.
    pub since: Time,
}

impl Attachment {
    /// Whether a request is working on it.
    pub fn is_busy(&self) -> bool {
        match self.state {
            AttachmentState::Attaching | AttachmentState::Detaching => true,
            AttachmentState::Attached => false,
        }
    }

    /// Begins to detach. A cluster that failed lets go of its volume too, without a restart: the volume may be the very reason
    /// why it does not run.
    pub fn begin_detach(mut self, cluster: &Cluster, live: bool, now: Time) -> Result<Self, Refused> {
        if self.is_busy() {
            return Err(Refused::AttachmentBusy);
        }
        if !cluster.has_failed() {
            cluster.must_run()?;
        }
        self.state = AttachmentState::Detaching;
        self.live = live;
        self.since = now;
        Ok(self)
    }

    /// It counts as mounted on every node: the end of attaching, or of a detaching that could not be done. A node that has ended,
    /// or could not get it back, has it after the next restart.
    pub fn attached(mut self, now: Time) -> Self {
        self.state = AttachmentState::Attached;
        self.since = now;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendering::{Transition, render};

    /// A failed volume in the table, by what is left of it: the rules differ.
    fn shown(state: &VolumeState) -> &'static str {
        match state {
            VolumeState::Failed { left: Left::Nothing, .. } => "FAILED, nothing left",
            VolumeState::Failed { left: Left::Parts, .. } => "FAILED, parts left",
            VolumeState::Failed { left: Left::Data, .. } => "FAILED, data left",
            other => other.name(),
        }
    }

    #[test]
    fn the_table_of_transitions_is_documented() {
        let failed = |left| VolumeState::Failed { reason: "why".into(), left };
        let states = [
            VolumeState::Pending,
            VolumeState::Creating,
            VolumeState::Ready,
            VolumeState::Resizing { to_gb: 2 },
            VolumeState::Destroying,
            VolumeState::Destroyed,
            failed(Left::Nothing),
            failed(Left::Parts),
            failed(Left::Data),
        ];
        let transitions: [Transition<VolumeState>; 8] = [
            ("create", VolumeState::create),
            ("ready", VolumeState::ready),
            ("resize", |state| state.resize(2)),
            ("destroy", VolumeState::destroy),
            ("gone", VolumeState::gone),
            ("fail", |state| state.fail("why", Left::Parts)),
            ("spoil", |state| state.spoil("why")),
            ("recover", VolumeState::recover),
        ];
        render("storage", &states, shown, &transitions);
    }
}
