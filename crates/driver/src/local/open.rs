//! How the driver begins: it checks the machine, finds what was made before, and sweeps away what was left half made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_model::ids::InstanceId;

use super::disks::Disks;
use super::gpus::{self, Gpus};
use super::images::{ImageSettings, Images};
use super::local_host::{LocalHost, blocking, failed};
use super::network::{Network, Prefix};
use super::places::Places;
use super::record::Record;
use super::settings::LocalSettings;
use super::volumes::{self, Volumes};
use super::{cgroups, disks, files, guest, host_image, installation, remove, trees};
use crate::Error;

/// How often what is kept is tried to be locked, and how long to wait in between.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn open(settings: LocalSettings) -> Result<LocalHost, Error> {
    check_machine(&settings)?;
    let (data, run, pool, binary) = (settings.data, settings.run, settings.pool, settings.guest);
    let (places, alone, pool) = take(data, run, pool).await?;
    let (own, name) = (places.clone(), "the guest could not be installed");
    let guest = blocking(name, move || guest::install(&own.guests(), binary)).await?;
    let own = places.clone();
    let records = blocking("the records of the local driver could not be read", move || load(&own)).await?;
    let remembered = records.values().next().map(|record| Prefix::of(record.address));
    let nodes = records.values().map(|record| record.address).collect();
    let network = Network::open(&places.installation, remembered).await?.with(nodes, settings.protections.clone());
    let network = network.denying(settings.denied);
    let (volumes, protections) = (Volumes::new(pool), settings.protections);
    let disks = Disks::open(&places, &volumes, settings.disk_bytes, &protections).await?;
    let shared = (network, volumes, disks, open_images(&places, settings.images, &records).await?);
    let gpus = Gpus::new(settings.gpus, settings.cdi);
    let (programs, given) = ((settings.helper, guest), (settings.inventory, gpus));
    let host = LocalHost::new(places, programs, given, shared, protections, records, alone);
    if let Err(error) = gpus::look(&host).await {
        // What runs without GPUs must not wait for one that hangs; they are looked at again every few seconds.
        tracing::warn!(%error, "the GPUs could not be looked at");
    }
    sweep(&host).await?;
    make_image(&host).await?;
    Ok(host)
}

/// Finds the container images. Whoever was unpacking a layer for an engine that died may still be about to end, and to leave
/// something where it was just swept: then it is swept again. What cannot be swept is in nobody's way.
async fn open_images(
    places: &Places,
    settings: ImageSettings,
    records: &BTreeMap<InstanceId, Record>,
) -> Result<Images, Error> {
    let directory = places.containers();
    let containers = records.values().filter_map(|record| record.container.as_ref());
    let in_use: BTreeSet<_> = containers.flat_map(|container| container.layers.clone()).collect();
    let what = "the cache of images could not be opened";
    let (images, mut half) = blocking(what, move || Images::open(directory, settings, &in_use)).await?;
    for tries in 0..=TRIES {
        half = blocking(what, move || {
            half.retain(|path| trees::remove(path).is_err());
            Ok(half)
        })
        .await?;
        if half.is_empty() {
            break;
        }
        if tries == TRIES {
            tracing::warn!(
                ?half,
                "what is left of layers could not be swept away; it is tried again at the next start"
            );
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(images)
}

/// Finds what is kept, and locks it for this engine. A process that a killed engine was just starting has the locks, too, until
/// it has become another program: that is waited for.
async fn take(data: PathBuf, run: PathBuf, pool: PathBuf) -> Result<(Places, File, File), Error> {
    let mut tries = 0;
    loop {
        let (data, run, pool) = (data.clone(), run.clone(), pool.clone());
        let what = "the data directory of the local driver could not be opened";
        match blocking(what, move || prepare(&data, run, &pool)).await? {
            Err(Error::Retry(_)) if tries < TRIES => tokio::time::sleep(PAUSE).await,
            taken => return taken,
        }
        tries += 1;
    }
}

fn check_machine(settings: &LocalSettings) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("the local driver {why}")));
    if !rustix::process::geteuid().is_root() {
        return refuse("needs to be run as root: it makes namespaces, mounts and network interfaces");
    }
    if settings.helper.is_empty() || settings.guest.is_empty() {
        return refuse("has no helper program or no guest: this build is incomplete");
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if !Path::new("/proc/self/ns/user").exists() || read("/proc/sys/user/max_user_namespaces").trim() == "0" {
        return refuse("needs user namespaces, which the kernel does not have or which are switched off");
    }
    if !read("/proc/filesystems").lines().any(|line| line.ends_with("\toverlay")) && !Path::new("/lib/modules").exists()
    {
        return refuse("needs the overlay filesystem, which the kernel does not have");
    }
    if !Path::new("/sys/fs/cgroup").is_dir() {
        return refuse("needs control groups, and none are mounted");
    }
    Ok(())
}

fn prepare(data: &Path, run: PathBuf, pool: &Path) -> io::Result<Result<(Places, File, File), Error>> {
    fs::create_dir_all(data)?;
    let data = data.canonicalize()?;
    files::ensure_directory(&data.join("instances"), 0o700)?;
    let alone = File::create(data.join("instances.lock"))?;
    match alone.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Ok(Err(Error::Retry("another engine uses the data directory of the local driver".into())));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let installation = installation::id(&data)?;
    let (pool, alone_there) = match volumes::open_pool(&data, pool, &installation)? {
        Ok(opened) => opened,
        Err(refused) => return Ok(Err(refused)),
    };
    volumes::sweep(&pool)?;
    Ok(Ok((Places { installation, data, pool, run }, alone, alone_there)))
}

/// Reads all records. A directory without one is what a creation or a removal left when the engine died.
fn load(places: &Places) -> io::Result<BTreeMap<InstanceId, Record>> {
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(places.instances())? {
        let path = entry?.path();
        match Record::load(&path)? {
            Some(record) if places.instance(&record.id) == path => {
                records.insert(record.id.clone(), record);
            }
            Some(_) => return Err(io::Error::other("a record lies in the directory of another instance")),
            None => trees::remove(&path)?,
        }
    }
    Ok(records)
}

/// Removes what has no record: it can only be what was left when the engine died between two steps.
async fn sweep(host: &LocalHost) -> Result<(), Error> {
    let what = "what was left of a removed instance could not be swept away";
    let places = &host.places;
    let known = |name: &str| name.parse::<InstanceId>().is_ok_and(|id| host.records().contains_key(&id));
    for name in cgroups::below(&places.cgroups()).map_err(|error| failed(what, &error))? {
        if !known(&name) {
            let group = places.cgroups().join(&name);
            cgroups::kill(&group).await.map_err(|error| failed(what, &error))?;
            cgroups::remove(&group).await.map_err(|error| failed(what, &error))?;
            disks::released(&places.instances().join(&name)).await?;
        }
    }
    for entry in fs::read_dir(places.running()).into_iter().flatten().flatten() {
        if !known(&entry.file_name().to_string_lossy()) {
            trees::remove(&entry.path()).map_err(|error| failed(what, &error))?;
        }
    }
    let (slots, addresses) = host.records().values().map(|record| (record.slot, record.address)).unzip();
    host.network.sweep(&slots, &addresses).await?;
    if host.records().is_empty() {
        remove::leave_machine(host).await?;
    }
    Ok(())
}

async fn make_image(host: &LocalHost) -> Result<(), Error> {
    let (images, skeletons) = (host.places.images(), host.places.skeletons());
    let used: Vec<_> = host.records().values().map(|record| record.image.clone()).collect();
    let what = "the image of this machine could not be made";
    let is_used = move |path: &Path| used.iter().any(|image| image == path);
    let (own, own_used) = (images.clone(), is_used.clone());
    let is_settled =
        move || host_image::sweep_skeletons(&skeletons, own_used).and_then(|()| host_image::is_settled(&own));
    if blocking(what, is_settled).await? {
        return Ok(());
    }
    let private = host.private.paths().await.map_err(|error| failed(what, &error))?;
    blocking(what, move || {
        host_image::sweep(&images, &private, is_used)?;
        host_image::ensure(&images, &private).map(drop)
    })
    .await
}
