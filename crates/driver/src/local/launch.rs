//! The dialogue with the helper process that puts an instance together.

use std::io;
use std::time::Duration;

use tarn_model::ids::VolumeId;

use super::dialogue::Helper;
use super::disks::{self, Disk, Opened};
use super::helper::order::{self, BEGIN, Layers, Order, Report, Start};
use super::local_host::{LocalHost, failed};
use super::processes::Process;
use super::protections::Protection;
use super::record::Record;
use super::volumes::Device;
use super::{cgroups, cpus, errands};
use crate::Error;
use crate::gpus::cdi::Edits;

/// How long the helper may take; it needs a twentieth of a second.
const PATIENCE: Duration = Duration::from_secs(30);

/// Processes and threads that every instance may have, and those that each CPU adds.
const PIDS: (u64, u64) = (4_096, 1_024);

/// The least memory of a process. Where there are more than fit, all the time goes into ending them for want of memory, and
/// nobody in the instance comes to anything else.
const LEAST_MEMORY: u64 = 256 << 10;

/// As many as there may be where a test has taken the limit away.
const UNLIMITED_PIDS: u64 = 1 << 15;

const FAILED: &str = "the instance could not be started";

/// Starts an instance whose directories, bridge and record exist, with these volumes, and records its process.
pub(super) async fn launch(
    host: &LocalHost,
    (record, devices): (Record, Edits),
    disk: Disk,
    volumes: &[(VolumeId, Device)],
) -> Result<Record, Error> {
    // It stays open until the helper has mounted it.
    let opened = disks::open(&disk).await?;
    let _turn = host.helpers.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    let mut helper = Helper::spawn(host).map_err(|error| failed(FAILED, &error))?;
    let patience = if volumes.is_empty() { PATIENCE } else { PATIENCE + errands::PATIENCE };
    let done =
        tokio::time::timeout(patience, talk(&mut helper, host, (record, devices), (&disk, &opened), volumes)).await;
    let done = done.unwrap_or_else(|_| Err(failed(FAILED, &io::Error::other("the helper took too long"))));
    helper.end(done.is_ok()).await;
    done
}

async fn talk(
    helper: &mut Helper,
    host: &LocalHost,
    (mut record, devices): (Record, Edits),
    (disk, opened): (&Disk, &Opened),
    volumes: &[(VolumeId, Device)],
) -> Result<Record, Error> {
    let lost = |error: io::Error| failed(FAILED, &error);
    let order = order(host, (&record, devices), opened, volumes);
    helper.order(&Order::Start(Box::new(order))).await.map_err(lost)?;
    let Report::Namespaces { pid: keeper } = helper.hear().await.map_err(lost)? else {
        return Err(lost(io::Error::other("the helper made no namespaces")));
    };
    // The network is made and connected while the helper goes on. The record keeps others from removing it again.
    let (connected, created, settled) =
        tokio::join!(connect(host, &record, keeper), helper.hear(), disks::settle(disk));
    connected?;
    settled?;
    let Report::Created { pid } = created.map_err(lost)? else {
        return Err(lost(io::Error::other("the helper created nothing")));
    };
    let process = Process::find(pid).map_err(lost)?;
    let process = process.ok_or_else(|| lost(io::Error::other("the instance ended at once")))?;
    if !volumes.is_empty() {
        errands::mount(host, &process, record.id_base, volumes).await?;
    }
    record.process = Some(process);
    host.save(&record).await?;
    helper.say(BEGIN).await.map_err(lost)?;
    match helper.hear().await.map_err(lost)? {
        Report::Begun => {
            limit_cpu(host, &record).map_err(lost)?;
            Ok(record)
        }
        _ => Err(lost(io::Error::other("the helper did not begin"))),
    }
}

/// Limits the processor time of an instance that runs.
pub(super) fn limit_cpu(host: &LocalHost, record: &Record) -> io::Result<()> {
    match host.protections.have(Protection::CgroupLimits) {
        true => cgroups::limit_cpu(&host.places.cgroup(&record.id), record.cpu_milli),
        false => Ok(()),
    }
}

async fn connect(host: &LocalHost, record: &Record, keeper: u32) -> Result<(), Error> {
    host.network.ensure_base().await?;
    host.network.ensure_bridge(record.slot).await?;
    host.network.attach(record.slot, record.address, keeper).await
}

fn order(
    host: &LocalHost,
    (record, devices): (&Record, Edits),
    disk: &Opened,
    volumes: &[(VolumeId, Device)],
) -> Start {
    let places = &host.places;
    let limited = host.protections.have(Protection::CgroupLimits);
    let disk = match disk {
        Opened::Directory(path) => order::Disk::Directory(path.clone()),
        Opened::Device(device) => {
            order::Disk::Device { device: device.path.clone(), number: device.number, file: device.file }
        }
    };
    Start {
        id: record.id.to_string(),
        hostname: record.name.clone(),
        image: record.image.clone(),
        container: record.container.as_ref().map(|container| Layers {
            // The helper needs the highest first.
            layers: container.layers.iter().rev().map(|layer| host.images.tree(layer)).collect(),
            image: container.image.clone(),
        }),
        disk,
        run: places.run_of(&record.id),
        guest: host.guest.clone(),
        id_base: record.id_base,
        cgroup: places.cgroup(&record.id).display().to_string(),
        cpus: cpus::list(&record.cpus),
        memory_bytes: if limited { record.memory_bytes } else { host.inventory.memory_bytes },
        pids: if limited { pids(record.cpus.len(), record.memory_bytes) } else { UNLIMITED_PIDS },
        protections: host.protections.clone(),
        volumes: volumes.iter().map(|(id, _)| id.clone()).collect(),
        devices,
    }
}

/// How many processes and threads an instance may have.
fn pids(cpus: usize, memory_bytes: u64) -> u64 {
    (PIDS.0 + PIDS.1 * cpus as u64).min(memory_bytes / LEAST_MEMORY)
}
