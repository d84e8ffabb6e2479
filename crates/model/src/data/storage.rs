//! Volumes and their attachments to clusters. `docs/states/storage.md` is rendered from this file by its test.

use crate::clusters::Cluster;
use crate::ids::{ClusterId, VolumeId};
use crate::users::Owner;
use crate::{Refused, Time};

/// The largest volume that can be requested, 10^15 bytes: far above any pool, far below any overflow.
pub const MAX_SIZE_GB: u64 = 1_000_000;

/// How many times its first size a volume may grow to.
pub const MAX_GROWTH: u64 = 100;

/// The state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeState {
    /// Requested; nothing exists yet.
    Pending,
    Creating,
    /// Can be used.
    Ready,
    Resizing {
        to_gb: u64,
    },
    /// It is being removed with its data.
    Destroying,
    /// Observed to be gone.
    Destroyed,
    /// Something went wrong.
    Failed {
        /// What went wrong, for the user.
        reason: String,
        left: VolumeRemains,
    },
}

/// What is left of a volume that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeRemains {
    /// Nothing: it takes no space of the pool.
    Nothing,
    /// Unusable parts, because its creation or removal was not completed. It can only be destroyed.
    Parts,
    /// Presumably its data: it was READY, and then was observed to be missing or damaged. It is READY again when it is
    /// observed to be intact.
    Data,
}

impl VolumeState {
    /// Returns the name that the API shows and the database stores.
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

    /// Its creation begins.
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

    /// Its growth begins.
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

    /// Its destruction begins.
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

    /// The work on it failed.
    pub fn fail(self, reason: &str, left: VolumeRemains) -> Result<Self, Refused> {
        match self {
            VolumeState::Pending | VolumeState::Creating | VolumeState::Destroying => {
                Ok(VolumeState::Failed { reason: reason.to_owned(), left })
            }
            VolumeState::Ready | VolumeState::Resizing { .. } => self.refuse("fail"),
            VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("fail"),
        }
    }

    /// It was observed to be missing or damaged while no request worked on it.
    pub fn spoil(self, reason: &str) -> Result<Self, Refused> {
        match self {
            VolumeState::Ready | VolumeState::Resizing { .. } => {
                Ok(VolumeState::Failed { reason: reason.to_owned(), left: VolumeRemains::Data })
            }
            VolumeState::Pending | VolumeState::Creating | VolumeState::Destroying => self.refuse("spoil"),
            VolumeState::Destroyed | VolumeState::Failed { .. } => self.refuse("spoil"),
        }
    }

    /// It was observed to be intact again.
    pub fn recover(self) -> Result<Self, Refused> {
        match self {
            VolumeState::Failed { left: VolumeRemains::Data, .. } => Ok(VolumeState::Ready),
            VolumeState::Failed { left: VolumeRemains::Nothing | VolumeRemains::Parts, .. } => self.refuse("recover"),
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
    pub id: VolumeId,
    /// Unique among the owner's live volumes.
    pub name: String,
    pub owner: Owner,
    /// In gigabytes of 10^9 bytes, as last observed.
    pub size_gb: u64,
    /// The size it was created with, which limits its growth.
    pub first_size_gb: u64,
    /// Whether destroying it is refused.
    pub deletion_protection: bool,
    pub state: VolumeState,
    /// When it entered its state.
    pub since: Time,
    pub created: Time,
    /// Counts the changes; a save with an old version lost a race.
    pub version: i64,
}

impl Volume {
    /// Returns this volume in the state that `transition` leads to.
    pub fn moved(
        mut self,
        now: Time,
        transition: impl FnOnce(VolumeState) -> Result<VolumeState, Refused>,
    ) -> Result<Self, Refused> {
        self.state = transition(self.state)?;
        self.since = now;
        Ok(self)
    }

    /// Begins to attach the volume; the request mounts it later.
    pub fn begin_attach(
        &self,
        cluster: &Cluster,
        existing: Option<&Attachment>,
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
        if let Some(existing) = existing {
            return Err(Refused::ClusterHasStorage {
                cluster: cluster.id.to_string(),
                volume: existing.volume.to_string(),
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

    /// Begins the destruction, unless a rule refuses it.
    pub fn begin_destroy(self, attachments: &[Attachment], now: Time) -> Result<Self, Refused> {
        if self.deletion_protection {
            return Err(Refused::DeletionProtected { what: "storage", id: self.id.to_string() });
        }
        if !attachments.is_empty() {
            let clusters =
                attachments.iter().map(|attachment| attachment.cluster.to_string()).collect::<Vec<_>>().join(", ");
            return Err(Refused::StorageAttached { clusters });
        }
        self.moved(now, VolumeState::destroy)
    }
}

/// The state of an attachment; a detached one has no row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentState {
    /// It is being mounted.
    Attaching,
    /// Observed to be mounted on every node.
    Attached,
    /// It is being unmounted.
    Detaching,
}

impl AttachmentState {
    /// Returns the name that the API shows and the database stores.
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
    pub volume: VolumeId,
    /// A cluster has at most one attachment.
    pub cluster: ClusterId,
    pub state: AttachmentState,
    /// Whether it is attached or detached without a restart of the nodes.
    pub live: bool,
    /// When it entered its state.
    pub since: Time,
}

impl Attachment {
    /// Returns whether a request works on it.
    pub fn is_busy(&self) -> bool {
        match self.state {
            AttachmentState::Attaching | AttachmentState::Detaching => true,
            AttachmentState::Attached => false,
        }
    }

    /// Begins to detach. This is allowed for a failed cluster too, without a restart: the volume may be the reason why
    /// the cluster does not run.
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

    /// Returns it as mounted on every node, after it was attached or after a detachment failed. A node that has ended
    /// or could not mount it again gets it at the next restart.
    pub fn attached(mut self, now: Time) -> Self {
        self.state = AttachmentState::Attached;
        self.since = now;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendering::{Transition, render_states};

    /// The name of a state in the table; a failed volume with what is left of it, because the rules differ.
    fn name_with_remains(state: &VolumeState) -> &'static str {
        match state {
            VolumeState::Failed { left: VolumeRemains::Nothing, .. } => "FAILED, nothing left",
            VolumeState::Failed { left: VolumeRemains::Parts, .. } => "FAILED, parts left",
            VolumeState::Failed { left: VolumeRemains::Data, .. } => "FAILED, data left",
            VolumeState::Pending | VolumeState::Creating | VolumeState::Ready => state.name(),
            VolumeState::Resizing { .. } | VolumeState::Destroying | VolumeState::Destroyed => state.name(),
        }
    }

    #[test]
    fn storage_transitions_are_documented() {
        let failed = |left| VolumeState::Failed { reason: "why".into(), left };
        let states = [
            VolumeState::Pending,
            VolumeState::Creating,
            VolumeState::Ready,
            VolumeState::Resizing { to_gb: 2 },
            VolumeState::Destroying,
            VolumeState::Destroyed,
            failed(VolumeRemains::Nothing),
            failed(VolumeRemains::Parts),
            failed(VolumeRemains::Data),
        ];
        let transitions: [Transition<VolumeState>; 8] = [
            ("create", VolumeState::create),
            ("ready", VolumeState::ready),
            ("resize", |state| state.resize(2)),
            ("destroy", VolumeState::destroy),
            ("gone", VolumeState::gone),
            ("fail", |state| state.fail("why", VolumeRemains::Parts)),
            ("spoil", |state| state.spoil("why")),
            ("recover", VolumeState::recover),
        ];
        render_states("storage", &states, name_with_remains, &transitions);
    }
}
