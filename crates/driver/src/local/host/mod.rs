//! What the driver uses of the host: control groups, CPUs, processes, mount tables, ids, files, name servers, loop
//! devices and XFS.
//!
//! Of instances and volumes it knows only the ids and the paths that belong to them (`paths`).

pub(super) mod cgroups;
pub(super) mod cpus;
pub(super) mod files;
pub(super) mod id_ranges;
pub(super) mod loop_device;
pub(super) mod mount_tables;
pub(super) mod name_servers;
pub(super) mod paths;
pub(super) mod processes;
pub(super) mod xfs;
