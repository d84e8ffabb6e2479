//! Launches an instance through the helper process that builds it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_model::ids::VolumeId;

use crate::Error;
use crate::gpus::cdi::Edits;
use crate::local::disk::{self, Disk, OpenDisk};
use crate::local::helper::order::{self, BEGIN, Layers, Order, Report, Start};
use crate::local::helper_process;
use crate::local::helper_process::HelperProcess;
use crate::local::host::loop_device::LoopDevice;
use crate::local::host::processes::Process;
use crate::local::host::{cgroups, cpus, files};
use crate::local::instance::record::Record;
use crate::local::local_host::{LocalHost, failed};
use crate::local::protections::Protection;

/// How long the helper may take; it needs a twentieth of a second.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The processes and threads that every instance may have, and those that each CPU adds.
const PIDS: (u64, u64) = (4_096, 1_024);

/// The least memory that a process needs. With more processes than fit into memory, the kernel spends all its time on
/// killing them and nothing else in the instance makes progress.
const MIN_PROCESS_MEMORY: u64 = 256 << 10;

/// The limit in a test that turns the limits off.
const UNLIMITED_PIDS: u64 = 1 << 15;

const FAILED: &str = "the instance could not be started";

/// What an instance is launched with.
pub(super) struct Launch<'a> {
    pub(super) record: Record,
    pub(super) devices: Edits,
    pub(super) disk: Disk,
    pub(super) volumes: &'a [(VolumeId, LoopDevice)],
}

/// Starts an instance whose directories, bridge and record exist, with these volumes, and records its process.
pub(super) async fn launch_instance(host: &LocalHost, launch: Launch<'_>) -> Result<Record, Error> {
    // It stays open until the helper has mounted it.
    let opened = disk::open_disk(&launch.disk).await?;
    let _permit = host.helper_permits.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    let mut helper = HelperProcess::spawn(host).map_err(|error| failed(FAILED, &error))?;
    let timeout = if launch.volumes.is_empty() { TIMEOUT } else { TIMEOUT + helper_process::TIMEOUT };
    let done = tokio::time::timeout(timeout, start_through_helper(&mut helper, host, launch, &opened)).await;
    let done = done.unwrap_or_else(|_| Err(failed(FAILED, &io::Error::other("the helper took too long"))));
    helper.finish(done.is_ok()).await;
    done
}

async fn start_through_helper(
    helper: &mut HelperProcess,
    host: &LocalHost,
    launch: Launch<'_>,
    opened: &OpenDisk,
) -> Result<Record, Error> {
    let start_failed = |error: io::Error| failed(FAILED, &error);
    let order = build_start_order(host, &launch, opened);
    let Launch { mut record, disk, volumes, .. } = launch;
    helper.send_order(&Order::Start(Box::new(order))).await.map_err(start_failed)?;
    let Report::Namespaces { pid: keeper } = helper.read_report().await.map_err(start_failed)? else {
        return Err(start_failed(io::Error::other("the helper created no namespaces")));
    };
    // The network is created and connected while the helper continues. The record keeps other operations from removing
    // it.
    let (connected, created, settled) =
        tokio::join!(connect_network(host, &record, keeper), helper.read_report(), disk::sync_new_disk(&disk));
    connected?;
    settled?;
    let Report::Created { pid } = created.map_err(start_failed)? else {
        return Err(start_failed(io::Error::other("the helper created nothing")));
    };
    let process = Process::find(pid).map_err(start_failed)?;
    let process = process.ok_or_else(|| start_failed(io::Error::other("the instance ended at once")))?;
    if !volumes.is_empty() {
        helper_process::mount_volumes(host, &process, record.id_base, volumes).await?;
    }
    record.process = Some(process);
    host.save_record(&record).await?;
    helper.send_line(BEGIN).await.map_err(start_failed)?;
    match helper.read_report().await.map_err(start_failed)? {
        Report::Begun => {
            apply_cpu_limit(host, &record).map_err(start_failed)?;
            Ok(record)
        }
        _ => Err(start_failed(io::Error::other("the helper did not start the instance"))),
    }
}

/// Limits the CPU time of a running instance.
pub(super) fn apply_cpu_limit(host: &LocalHost, record: &Record) -> io::Result<()> {
    if host.protections.have(Protection::CgroupLimits) {
        cgroups::limit_cpu_time(&host.paths.instance_cgroup(&record.id), record.cpu_milli)
    } else {
        Ok(())
    }
}

async fn connect_network(host: &LocalHost, record: &Record, keeper: u32) -> Result<(), Error> {
    host.network.ensure_base().await?;
    host.network.ensure_bridge(record.slot).await?;
    host.network.attach(record.slot, record.address, keeper).await
}

fn build_start_order(host: &LocalHost, launch: &Launch<'_>, disk: &OpenDisk) -> Start {
    let record = &launch.record;
    let paths = &host.paths;
    let limited = host.protections.have(Protection::CgroupLimits);
    let disk = match disk {
        OpenDisk::Directory(path) => order::Disk::Directory(path.clone()),
        OpenDisk::Device(device) => {
            order::Disk::Device { device: device.path.clone(), number: device.number, file: device.file }
        }
    };
    Start {
        id: record.id.to_string(),
        hostname: record.name.clone(),
        image: record.image.clone(),
        container: record.container.as_ref().map(|container| Layers {
            // The helper needs the topmost layer first.
            layers: container.layers.iter().rev().map(|layer| host.images.tree(layer)).collect(),
            image: container.image.clone(),
        }),
        disk,
        run: paths.run_directory(&record.id),
        guest: host.guest.clone(),
        id_base: record.id_base,
        cgroup: paths.instance_cgroup(&record.id).display().to_string(),
        cpus: cpus::format_cpu_list(&record.cpus),
        memory_bytes: if limited { record.memory_bytes } else { host.inventory.memory_bytes },
        pids: if limited { process_limit(record.cpus.len(), record.memory_bytes) } else { UNLIMITED_PIDS },
        protections: host.protections.clone(),
        volumes: launch.volumes.iter().map(|(id, _)| id.clone()).collect(),
        devices: launch.devices.clone(),
        lxcfs: host.lxcfs.for_start(),
    }
}

/// How many processes and threads an instance may have.
fn process_limit(cpus: usize, memory_bytes: u64) -> u64 {
    (PIDS.0 + PIDS.1 * cpus as u64).min(memory_bytes / MIN_PROCESS_MEMORY)
}

/// Decompresses the guest and writes it under a name derived from its content. Older ones are removed: instances that
/// run them keep them open.
pub(in crate::local) fn install_guest_binary(guests: &Path, compressed: &[u8]) -> io::Result<PathBuf> {
    files::ensure_directory(guests, 0o755)?;
    let name = format!("tarn-guest-{}", &blake3::hash(compressed).to_hex()[..16]);
    let path = guests.join(&name);
    // A host that lost power may have kept the name of a file without all of its content.
    let size = zstd::zstd_safe::get_frame_content_size(compressed).ok().flatten();
    if fs::metadata(&path).ok().map(|found| found.len()) != size {
        files::write_durably(&path, &zstd::decode_all(compressed)?, 0o555)?;
    }
    for entry in fs::read_dir(guests)? {
        let entry = entry?;
        if entry.file_name() != *name {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(path)
}
