//! Making an instance exist and run.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tarn_link::Purpose;
use tarn_model::ids::InstanceId;

use super::disks::{self, Disk};
use super::images::Pins;
use super::local_host::{LocalHost, blocking, failed};
use super::places::Places;
use super::record::{Container, Record};
use super::{cgroups, claim, files, gpus, host_image, images, launch, links, observe, remove, trees, volumes};
use crate::{Error, InstanceSpec, ObservedInstance};

/// How long a guest may take to answer that it will stop, on a busy machine as well: what jobs have said last is lost with one that
/// is ended before.
const ANSWER: Duration = Duration::from_secs(10);

/// How long it may then take to end its processes: longer than those have that the guest asks and then kills.
const GRACE: Duration = Duration::from_secs(20);

/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(2);

/// So often an engine may lose the race against others that leave the machine.
const RACES: u32 = 20;

/// No host name is longer, and no shell has trouble with it.
const MAX_NAME: usize = 63;

/// Fetches the image of an instance that is to start, if it is not here. It may take long, so no lock is held: the instance may
/// have to be removed meanwhile. Whoever no longer waits for the start ends the pull.
pub(super) async fn fetch(host: &Arc<LocalHost>, spec: &InstanceSpec) -> Result<(), Error> {
    let wanted = match host.record(&spec.id) {
        Some(record) => {
            let seen = observe::look(host, &record)?;
            let is_started = seen.boot > spec.boot || (seen.boot == spec.boot && seen.running);
            // It stands on what it was made with, and on nothing else.
            record.container.filter(|own| !is_started && !host.images.have(&own.layers)).map(|own| own.name)
        }
        None => spec.container.clone(),
    };
    match wanted {
        Some(name) => images::fetch(host, &name).await,
        None => Ok(()),
    }
}

/// Makes the instance exist and run.
pub(super) async fn ensure(host: &LocalHost, spec: &InstanceSpec) -> Result<ObservedInstance, Error> {
    check(spec)?;
    let _one_at_a_time = host.lock(&spec.id).await;
    let known = host.record(&spec.id);
    if let Some(record) = &known {
        let seen = observe::look(host, record)?;
        if seen.boot > spec.boot || (seen.boot == spec.boot && seen.running) {
            if seen.running {
                // An engine that died right after the start has not come to this.
                launch::limit_cpu(host, record)
                    .map_err(|error| failed("the processor time of an instance could not be limited", &error))?;
            }
            return Ok(seen);
        }
        disks::must_be_there(host, record)?;
    }
    // What cannot be mounted, or is missing for a GPU, is found out before anything is stopped or made.
    gpus::check(&host.records(), &host.gpus.last(), spec)?;
    let devices = gpus::edits(host, &spec.gpus).await?;
    let mut volumes = Vec::new();
    for id in &spec.volumes {
        volumes.push((id.clone(), volumes::open(host, id).await?));
    }
    if let Some(record) = known.as_ref().filter(|record| observe::alive(record).unwrap_or(true)) {
        stop(host, record).await;
    }
    let started = match begin(host, spec).await {
        Ok((record, disk)) => launch::launch(host, (record, devices), disk, &volumes).await,
        Err(error) => Err(error),
    };
    match started {
        Ok(record) => observe::look(host, &record),
        Err(error) => {
            // Whoever was never there leaves nothing behind; one that was keeps its disk and its place.
            let undone = match &known {
                None => remove::take_apart(host, &spec.id).await,
                Some(_) => clear(host, &spec.id).await,
            };
            if let Err(why) = undone {
                tracing::warn!(id = %spec.id, %why, "what was left of a failed start could not be removed");
            }
            Err(error)
        }
    }
}

fn check(spec: &InstanceSpec) -> Result<(), Error> {
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if spec.name.is_empty() || spec.name.len() > MAX_NAME || !plain(&spec.name) || spec.name.starts_with('-') {
        return Err(Error::Permanent("the name of the instance is not a host name".into()));
    }
    Ok(())
}

/// Puts the instance on record and makes everything it stands on.
async fn begin(host: &LocalHost, spec: &InstanceSpec) -> Result<(Record, Disk), Error> {
    // The layers stay until the record says that they are needed.
    let (foundation, _pins) = foundation(host, spec).await?;
    let mut record = {
        let _gate = host.gate.lock().await;
        if host.records().is_empty() {
            host.network.settle().await?;
        }
        let record = claim::claim(host, spec, foundation)?;
        let directory = host.places.instance(&record.id);
        blocking("an instance could not be recorded", move || files::ensure_directory(&directory, 0o700)).await?;
        host.save(&record).await?;
        record
    };
    clear(host, &record.id).await?;
    let (places, id) = (host.places.clone(), record.id.clone());
    let what = "the directories of an instance could not be made";
    blocking(what, move || make_run_directories(&places, &id)).await?;
    let disk = disks::ensure(host, &record).await?;
    record.had_disk = true;
    Ok((record, disk))
}

/// What an instance stands on: the image of the machine, or a container image below what every instance needs. One that exists
/// stays on what it has.
async fn foundation<'a>(
    host: &'a LocalHost,
    spec: &InstanceSpec,
) -> Result<((PathBuf, Option<Container>), Option<Pins<'a>>), Error> {
    let what = "the image of this machine could not be made";
    if let Some(record) = host.record(&spec.id) {
        match &record.container {
            None => {
                let private = host.private.paths().await.map_err(|error| failed(what, &error))?;
                let image = record.image.clone();
                blocking(what, move || host_image::cover(&image, &private)).await?;
            }
            Some(own) if !host.images.have(&own.layers) => {
                return Err(Error::Retry("the image of an instance has lost a layer, which is pulled again".into()));
            }
            Some(_) => {}
        }
        return Ok(((record.image, record.container), None));
    }
    let Some(name) = &spec.container else {
        let private = host.private.paths().await.map_err(|error| failed(what, &error))?;
        // Two that make the image of a machine that has just changed would be in each other's way.
        let _one_at_a_time = host.image.lock().await;
        let images = host.places.images();
        let image = blocking(what, move || host_image::ensure(&images, &private)).await?;
        return Ok(((image, None), None));
    };
    let (stored, pins) = images::hold(host, name)?;
    let _one_at_a_time = host.image.lock().await;
    let skeletons = host.places.skeletons();
    let skeleton = blocking(what, move || host_image::ensure_skeleton(&skeletons)).await?;
    let container = Container { name: name.clone(), layers: stored.layers, image: stored.image };
    Ok(((skeleton, Some(container)), Some(pins)))
}

/// Makes the directories of an instance that runs. Another engine may remove the one that all engines share while it is
/// still empty, so this tries more than once.
fn make_run_directories(places: &Places, id: &InstanceId) -> io::Result<()> {
    let own = places.run_of(id);
    let directories = [places.run.clone(), places.running(), own.clone(), own.join("mounts")];
    let make = || directories.iter().try_for_each(|directory| files::ensure_directory(directory, 0o711));
    let mut made = make();
    for _ in 0..RACES {
        match &made {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made = make(),
            _ => break,
        }
    }
    made
}

/// Removes what an earlier start left on the machine, but nothing that is kept.
pub(super) async fn clear(host: &LocalHost, id: &InstanceId) -> Result<(), Error> {
    let what = "what was left of an earlier start could not be removed";
    let group = host.places.cgroup(id);
    cgroups::kill(&group).await.map_err(|error| failed(what, &error))?;
    cgroups::remove(&group).await.map_err(|error| failed(what, &error))?;
    let run = host.places.run_of(id);
    blocking(what, move || trees::remove(&run)).await
}

/// Asks the guest to stop and waits for it; what does not stop is ended by [`clear`].
async fn stop(host: &LocalHost, record: &Record) {
    if let Err(error) = links::say(host, &record.id, Purpose::Stop, ANSWER).await {
        tracing::info!(id = %record.id, %error, "the guest does not stop by itself");
        return;
    }
    let gone = async {
        while observe::alive(record).unwrap_or(false) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    if tokio::time::timeout(GRACE, gone).await.is_err() {
        tracing::info!(id = %record.id, "the guest did not stop in time");
    }
}
