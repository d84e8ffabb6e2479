//! Ensures that an instance exists and runs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tarn_link::Purpose;
use tarn_model::ids::InstanceId;

use crate::local::disk::{self, Disk};
use crate::local::host::paths::InstallationPaths;
use crate::local::host::{cgroups, files};
use crate::local::images::Pins;
use crate::local::instance::launch::Launch;
use crate::local::instance::record::RootImage;
use crate::local::instance::record::{Container, Record};
use crate::local::instance::{guest_calls, launch, observe, record, remove};
use crate::local::local_host::{LocalHost, blocking, failed};
use crate::local::{gpus, host_image, images, volumes};
use crate::{Error, InstanceSpec, ObservedInstance};

/// How long a guest may take to reply that it will stop, also on a busy host: the last output of jobs is lost when the
/// guest is killed instead.
const STOP_REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it may then take to end its processes: longer than the time the guest itself gives them before it kills
/// them.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// The delay between two observations.
const PAUSE: Duration = Duration::from_millis(2);

/// How often another engine may remove the shared run directory while this one creates its own.
const MAX_ATTEMPTS: u32 = 20;

/// The longest host name.
const MAX_HOSTNAME_LENGTH: usize = 63;

/// Fetches the image of an instance that is about to start, if it is missing. This may take long, so no lock is held
/// and the instance can be removed meanwhile. A caller that stops waiting cancels the pull.
pub(in crate::local) async fn fetch_missing_image(host: &Arc<LocalHost>, spec: &InstanceSpec) -> Result<(), Error> {
    let wanted = match host.record(&spec.id) {
        Some(record) => {
            let seen = observe::observe_record(host, &record)?;
            let is_started = seen.boot > spec.boot || (seen.boot == spec.boot && seen.running);
            // An existing instance keeps the image it was created with.
            record.container.filter(|own| !is_started && !host.images.have(&own.layers)).map(|own| own.name)
        }
        None => spec.container.clone(),
    };
    match wanted {
        Some(name) => images::fetch(host, &name, &spec.share).await,
        None => Ok(()),
    }
}

/// Ensures that the instance exists and runs.
pub(in crate::local) async fn ensure_instance(
    host: &LocalHost,
    spec: &InstanceSpec,
) -> Result<ObservedInstance, Error> {
    check_hostname(spec)?;
    let _one_at_a_time = host.lock(&spec.id).await;
    let known = host.record(&spec.id);
    if let Some(record) = &known {
        let seen = observe::observe_record(host, record)?;
        if seen.boot > spec.boot || (seen.boot == spec.boot && seen.running) {
            if seen.running {
                // An engine that died right after the start has not set the limit.
                launch::apply_cpu_limit(host, record)
                    .map_err(|error| failed("the CPU time of the instance could not be limited", &error))?;
            }
            return Ok(seen);
        }
        disk::check_disk_exists(host, record)?;
    }
    // A volume that cannot be mounted, or a missing part of a GPU, is found before anything is stopped or created.
    gpus::check_gpu_claims(&host.records(), &host.gpus.last(), spec)?;
    let devices = gpus::resolve_device_edits(host, &spec.gpus).await?;
    let mut volumes = Vec::new();
    for id in &spec.volumes {
        volumes.push((id.clone(), volumes::open_volume(host, id).await?));
    }
    if let Some(record) = known.as_ref().filter(|record| observe::is_alive(record).unwrap_or(true)) {
        stop_guest(host, record).await;
    }
    let started = match record_and_prepare(host, spec).await {
        Ok((record, disk)) => launch::launch_instance(host, Launch { record, devices, disk, volumes: &volumes }).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(record) => observe::observe_record(host, &record),
        Err(error) => {
            // A new instance leaves nothing behind; an existing one keeps its disk and its address.
            let undone = match &known {
                None => remove::remove_locked(host, &spec.id).await,
                Some(_) => clear_previous_start(host, &spec.id).await,
            };
            if let Err(why) = undone {
                tracing::warn!(id = %spec.id, %why, "the leftovers of a failed start could not be removed");
            }
            Err(error)
        }
    }
}

fn check_hostname(spec: &InstanceSpec) -> Result<(), Error> {
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if spec.name.is_empty() || spec.name.len() > MAX_HOSTNAME_LENGTH || !plain(&spec.name) || spec.name.starts_with('-')
    {
        return Err(Error::Permanent("the name of the instance is not a valid host name".into()));
    }
    Ok(())
}

/// Records the instance and creates everything its start needs.
async fn record_and_prepare(host: &LocalHost, spec: &InstanceSpec) -> Result<(Record, Disk), Error> {
    // The layers stay pinned until the record refers to them.
    let (root_image, _pins) = resolve_root_image(host, spec).await?;
    let mut record = {
        let _guard = host.shared_resources.lock().await;
        if host.records().is_empty() {
            host.network.settle().await?;
        }
        let record = record::claim_resources(host, spec, root_image)?;
        let directory = host.paths.instance_directory(&record.id);
        blocking("the instance could not be recorded", move || files::ensure_directory(&directory, 0o700)).await?;
        host.save_record(&record).await?;
        record
    };
    clear_previous_start(host, &record.id).await?;
    let (paths, id) = (host.paths.clone(), record.id.clone());
    let what = "the run directories of the instance could not be created";
    blocking(what, move || create_run_directories(&paths, &id)).await?;
    let disk = disk::ensure_disk(host, &record).await?;
    record.had_disk = true;
    Ok((record, disk))
}

/// Finds the root image of an instance: the host image, or a container image with the skeleton on top. An existing
/// instance keeps what it has.
async fn resolve_root_image<'a>(
    host: &'a LocalHost,
    spec: &InstanceSpec,
) -> Result<(RootImage, Option<Pins<'a>>), Error> {
    let what = "the host image could not be created";
    // A host image is a cache: if it was lost, the instance gets the present one.
    let is_lost = |record: &Record| record.container.is_none() && !record.image.exists();
    if let Some(record) = host.record(&spec.id).filter(|record| !is_lost(record)) {
        match &record.container {
            None => {
                let private = host.private_paths.paths().await.map_err(|error| failed(what, &error))?;
                let image = record.image.clone();
                blocking(what, move || host_image::cover(&image, &private)).await?;
            }
            Some(own) if !host.images.have(&own.layers) => {
                return Err(Error::Retry("a layer of the instance's image is missing and is pulled again".into()));
            }
            Some(_) => {}
        }
        return Ok((RootImage { path: record.image, container: record.container }, None));
    }
    let Some(name) = &spec.container else {
        let private = host.private_paths.paths().await.map_err(|error| failed(what, &error))?;
        // The host may just have changed; two calls must not create its image at the same time.
        let _one_at_a_time = host.host_image.lock().await;
        let images = host.paths.host_images();
        let image = blocking(what, move || host_image::ensure(&images, &private)).await?;
        return Ok((RootImage { path: image, container: None }, None));
    };
    let (stored, pins) = images::hold(host, name)?;
    let _one_at_a_time = host.host_image.lock().await;
    let skeletons = host.paths.skeletons();
    let skeleton = blocking(what, move || host_image::ensure_skeleton(&skeletons)).await?;
    let container = Container { name: name.clone(), layers: stored.layers, image: stored.image };
    Ok((RootImage { path: skeleton, container: Some(container) }, Some(pins)))
}

/// Creates the run directories of an instance. Another engine may remove the directory that all engines share while it
/// is still empty, so this tries more than once.
fn create_run_directories(paths: &InstallationPaths, id: &InstanceId) -> io::Result<()> {
    let own = paths.run_directory(id);
    let directories = [paths.run.clone(), paths.running(), own.clone(), own.join("mounts")];
    let make = || directories.iter().try_for_each(|directory| files::ensure_directory(directory, 0o711));
    let mut made = make();
    for _ in 0..MAX_ATTEMPTS {
        match &made {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made = make(),
            _ => break,
        }
    }
    made
}

/// Removes the leftovers of an earlier start from the host, but nothing persistent.
pub(in crate::local) async fn clear_previous_start(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let what = "the leftovers of an earlier start could not be removed";
    let group = host.paths.instance_cgroup(id);
    cgroups::kill_all_processes(&group).await.map_err(|error| failed(what, &error))?;
    cgroups::remove_cgroup(&group).await.map_err(|error| failed(what, &error))?;
    let run = host.paths.run_directory(id);
    blocking(what, move || files::remove_tree(&run)).await
}

/// Asks the guest to stop and waits for it. A guest that does not stop is killed by [`clear_previous_start`].
async fn stop_guest(host: &LocalHost, record: &Record) {
    if let Err(error) = guest_calls::call_guest(host, &record.id, Purpose::Stop, STOP_REPLY_TIMEOUT).await {
        tracing::info!(id = %record.id, %error, "the guest does not stop by itself");
        return;
    }
    let gone = async {
        while observe::is_alive(record).unwrap_or(false) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    if tokio::time::timeout(STOP_TIMEOUT, gone).await.is_err() {
        tracing::info!(id = %record.id, "the guest did not stop in time");
    }
}
