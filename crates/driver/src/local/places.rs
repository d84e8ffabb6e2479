//! Where everything of an installation is.

use std::path::{Path, PathBuf};

use tarn_model::ids::{InstanceId, VolumeId};

/// Where everything of an installation is.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The installation's id.
    pub(super) installation: String,
    /// What is kept.
    pub(super) data: PathBuf,
    /// The volumes.
    pub(super) pool: PathBuf,
    /// What lives while instances run, of every engine on the machine.
    pub(super) run: PathBuf,
}

impl Places {
    /// The records and disks of all instances.
    pub(super) fn instances(&self) -> PathBuf {
        self.data.join("instances")
    }

    /// The record and the disk of an instance.
    pub(super) fn instance(&self, id: &InstanceId) -> PathBuf {
        self.instances().join(id.as_str())
    }

    /// The disk of an instance.
    pub(super) fn disk(&self, id: &InstanceId) -> PathBuf {
        self.instance(id).join("disk")
    }

    /// What is kept of a volume.
    pub(super) fn volume(&self, id: &VolumeId) -> PathBuf {
        self.pool.join(id.as_str())
    }

    /// The file with the filesystem of a volume.
    pub(super) fn volume_file(&self, id: &VolumeId) -> PathBuf {
        self.volume(id).join("data.xfs")
    }

    /// What instances of container images have on top of their layers.
    pub(super) fn skeletons(&self) -> PathBuf {
        self.data.join("images/skeletons")
    }

    /// The container images.
    pub(super) fn containers(&self) -> PathBuf {
        self.data.join("images/containers")
    }

    /// The images made from this machine.
    pub(super) fn images(&self) -> PathBuf {
        self.data.join("images/host")
    }

    /// The guest binaries.
    pub(super) fn guests(&self) -> PathBuf {
        self.data.join("guests")
    }

    /// What lives while instances of this installation run.
    pub(super) fn running(&self) -> PathBuf {
        self.run.join(&self.installation)
    }

    /// What lives while an instance runs.
    pub(super) fn run_of(&self, id: &InstanceId) -> PathBuf {
        self.running().join(id.as_str())
    }

    /// The control socket of an instance.
    pub(super) fn control(&self, id: &InstanceId) -> PathBuf {
        self.run_of(id).join("control.sock")
    }

    /// The control group of the installation, from the root of the hierarchy.
    pub(super) fn cgroups(&self) -> PathBuf {
        Path::new("/").join(format!("tarn-{}", self.installation))
    }

    /// The control group of an instance.
    pub(super) fn cgroup(&self, id: &InstanceId) -> PathBuf {
        self.cgroups().join(id.as_str())
    }
}
