//! Where everything of an installation is.

use std::path::{Path, PathBuf};

use tarn_model::ids::{InstanceId, VolumeId};

/// Where everything of an installation is.
#[derive(Clone, Debug)]
pub(in crate::local) struct InstallationPaths {
    /// The installation's id.
    pub(in crate::local) installation: String,
    /// What is kept.
    pub(in crate::local) data: PathBuf,
    /// The volumes.
    pub(in crate::local) pool: PathBuf,
    /// What lives while instances run, of every engine on the machine.
    pub(in crate::local) run: PathBuf,
}

impl InstallationPaths {
    /// The records and disks of all instances.
    pub(in crate::local) fn instances(&self) -> PathBuf {
        self.data.join("instances")
    }

    /// The record and the disk of an instance.
    pub(in crate::local) fn instance_directory(&self, id: &InstanceId) -> PathBuf {
        self.instances().join(id.as_str())
    }

    /// The disk of an instance, where it is a directory.
    pub(in crate::local) fn disk_directory(&self, id: &InstanceId) -> PathBuf {
        self.instance_directory(id).join("disk")
    }

    /// The disk of an instance, where it is a file with a filesystem.
    pub(in crate::local) fn disk_file(&self, id: &InstanceId) -> PathBuf {
        self.instance_directory(id).join("disk.xfs")
    }

    /// What the disks of instances are made from.
    pub(in crate::local) fn disk_templates(&self) -> PathBuf {
        self.data.join("disks")
    }

    /// What is kept of a volume.
    pub(in crate::local) fn volume_directory(&self, id: &VolumeId) -> PathBuf {
        self.pool.join(id.as_str())
    }

    /// The file with the filesystem of a volume.
    pub(in crate::local) fn volume_file(&self, id: &VolumeId) -> PathBuf {
        self.volume_directory(id).join("data.xfs")
    }

    /// What instances of container images have on top of their layers.
    pub(in crate::local) fn skeletons(&self) -> PathBuf {
        self.data.join("images/skeletons")
    }

    /// The container images.
    pub(in crate::local) fn container_images(&self) -> PathBuf {
        self.data.join("images/containers")
    }

    /// The images made from this machine.
    pub(in crate::local) fn host_images(&self) -> PathBuf {
        self.data.join("images/host")
    }

    /// The guest binaries.
    pub(in crate::local) fn guest_binaries(&self) -> PathBuf {
        self.data.join("guests")
    }

    /// What lives while instances of this installation run.
    pub(in crate::local) fn running(&self) -> PathBuf {
        self.run.join(&self.installation)
    }

    /// What lives while an instance runs.
    pub(in crate::local) fn run_directory(&self, id: &InstanceId) -> PathBuf {
        self.running().join(id.as_str())
    }

    /// The control socket of an instance.
    pub(in crate::local) fn control_socket(&self, id: &InstanceId) -> PathBuf {
        self.run_directory(id).join("control.sock")
    }

    /// The control group of the installation, from the root of the hierarchy.
    pub(in crate::local) fn cgroups(&self) -> PathBuf {
        Path::new("/").join(format!("tarn-{}", self.installation))
    }

    /// The control group of an instance.
    pub(in crate::local) fn instance_cgroup(&self, id: &InstanceId) -> PathBuf {
        self.cgroups().join(id.as_str())
    }
}
