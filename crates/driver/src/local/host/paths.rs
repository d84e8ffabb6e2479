//! The paths of an installation.

use std::path::{Path, PathBuf};

use tarn_model::ids::{InstanceId, VolumeId};

/// The paths of an installation.
#[derive(Clone, Debug)]
pub(in crate::local) struct InstallationPaths {
    /// The installation id.
    pub(in crate::local) installation: String,
    /// The persistent data.
    pub(in crate::local) data: PathBuf,
    /// The pool of the volumes.
    pub(in crate::local) pool: PathBuf,
    /// The run directory, which all engines on the host share.
    pub(in crate::local) run: PathBuf,
}

impl InstallationPaths {
    /// The directories of all instances.
    pub(in crate::local) fn instances(&self) -> PathBuf {
        self.data.join("instances")
    }

    /// The directory with the record and the disk of an instance.
    pub(in crate::local) fn instance_directory(&self, id: &InstanceId) -> PathBuf {
        self.instances().join(id.as_str())
    }

    /// The disk of an instance, if it is a directory.
    pub(in crate::local) fn disk_directory(&self, id: &InstanceId) -> PathBuf {
        self.instance_directory(id).join("disk")
    }

    /// The disk of an instance, if it is a file with a filesystem.
    pub(in crate::local) fn disk_file(&self, id: &InstanceId) -> PathBuf {
        self.instance_directory(id).join("disk.xfs")
    }

    /// The templates of the disks.
    pub(in crate::local) fn disk_templates(&self) -> PathBuf {
        self.data.join("disks")
    }

    /// The directory of a volume.
    pub(in crate::local) fn volume_directory(&self, id: &VolumeId) -> PathBuf {
        self.pool.join(id.as_str())
    }

    /// The file with the filesystem of a volume.
    pub(in crate::local) fn volume_file(&self, id: &VolumeId) -> PathBuf {
        self.volume_directory(id).join("data.xfs")
    }

    /// The skeletons, which lie on top of the layers of container images.
    pub(in crate::local) fn skeletons(&self) -> PathBuf {
        self.data.join("images/skeletons")
    }

    /// The cache of container images.
    pub(in crate::local) fn container_images(&self) -> PathBuf {
        self.data.join("images/containers")
    }

    /// The images created from this host.
    pub(in crate::local) fn host_images(&self) -> PathBuf {
        self.data.join("images/host")
    }

    /// The guest binaries.
    pub(in crate::local) fn guest_binaries(&self) -> PathBuf {
        self.data.join("guests")
    }

    /// The part of the run directory that belongs to this installation.
    pub(in crate::local) fn running(&self) -> PathBuf {
        self.run.join(&self.installation)
    }

    /// The run directory of an instance.
    pub(in crate::local) fn run_directory(&self, id: &InstanceId) -> PathBuf {
        self.running().join(id.as_str())
    }

    /// The control socket of an instance.
    pub(in crate::local) fn control_socket(&self, id: &InstanceId) -> PathBuf {
        self.run_directory(id).join("control.sock")
    }

    /// The control group of the installation, relative to the root of the hierarchy.
    pub(in crate::local) fn cgroups(&self) -> PathBuf {
        Path::new("/").join(format!("tarn-{}", self.installation))
    }

    /// The control group of an instance.
    pub(in crate::local) fn instance_cgroup(&self, id: &InstanceId) -> PathBuf {
        self.cgroups().join(id.as_str())
    }
}
