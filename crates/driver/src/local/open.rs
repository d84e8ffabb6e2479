//! Opens the driver: checks the host, loads the records, and removes what an engine that died left half created.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_model::ids::InstanceId;
use tokio::sync::Semaphore;

use crate::Error;
use crate::local::disk::DiskSource;
use crate::local::gpus::{self, Gpus};
use crate::local::host::paths::InstallationPaths;
use crate::local::host::{cgroups, files};
use crate::local::host_image::Private;
use crate::local::images::{ImageSettings, Images};
use crate::local::instance::record::Record;
use crate::local::instance::{launch, remove};
use crate::local::local_host::{LocalHost, MAX_HELPERS, blocking, failed};
use crate::local::lxcfs::Lxcfs;
use crate::local::network::{Network, Prefix};
use crate::local::settings::LocalSettings;
use crate::local::volumes::{self, Volumes};
use crate::local::{disk, host_image, installation};

/// How often to try to lock the directories or to sweep a layer, and the delay between attempts.
const MAX_ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn open_local_host(settings: LocalSettings) -> Result<LocalHost, Error> {
    check_host_requirements(&settings)?;
    let LockedDirectories { paths, data_lock, pool_lock } =
        lock_directories(&settings.data, &settings.run, &settings.pool).await?;
    let (directory, binary) = (paths.guest_binaries(), settings.guest);
    let what = "the guest could not be installed";
    let guest = blocking(what, move || launch::install_guest_binary(&directory, binary)).await?;
    let own = paths.clone();
    let records = blocking("the records of the local driver could not be read", move || load_records(&own)).await?;
    let remembered = records.values().next().map(|record| Prefix::of(record.address));
    let nodes = records.values().map(|record| record.address).collect();
    let network = Network::open(&paths.installation, remembered).await?.with(nodes, settings.protections.clone());
    let network = network.with_policy(settings.policy);
    let (volumes, protections) = (Volumes::new(pool_lock), settings.protections);
    let disks = DiskSource::open(&paths, &volumes, settings.disk_bytes, &protections).await?;
    let images = open_images(&paths, settings.images, &records).await?;
    let gpus = Gpus::new(settings.gpus, settings.cdi);
    let (helper, inventory) = (settings.helper, settings.inventory);
    let host = LocalHost {
        paths,
        helper,
        guest,
        inventory,
        gpus,
        network,
        volumes,
        disks,
        images: Arc::new(images),
        protections,
        lxcfs: Lxcfs::new(settings.lxcfs),
        shared_resources: tokio::sync::Mutex::default(),
        helper_permits: Semaphore::new(MAX_HELPERS),
        private_paths: Private::new(),
        host_image: tokio::sync::Mutex::default(),
        records: Arc::new(Mutex::new(records)),
        locks: Mutex::default(),
        _data_lock: data_lock,
    };
    if let Err(error) = gpus::observe_gpus(&host).await {
        // Instances without GPUs must not wait for a GPU that hangs. GPUs are observed again every few seconds.
        tracing::warn!(%error, "the GPUs could not be observed");
    }
    sweep_leftovers(&host).await?;
    ensure_host_image(&host).await?;
    Ok(host)
}

/// Opens the cache of container images. A helper that was unpacking a layer for an engine that died may still be
/// running and may write again to a place that was just swept, so the sweep is repeated. What cannot be swept does no
/// harm.
async fn open_images(
    paths: &InstallationPaths,
    settings: ImageSettings,
    records: &BTreeMap<InstanceId, Record>,
) -> Result<Images, Error> {
    let directory = paths.container_images();
    let containers = records.values().filter_map(|record| record.container.as_ref());
    let in_use: BTreeSet<_> = containers.flat_map(|container| container.layers.clone()).collect();
    let what = "the cache of images could not be opened";
    let (images, mut leftovers) = blocking(what, move || Images::open(directory, settings, &in_use)).await?;
    for attempt in 0..=MAX_ATTEMPTS {
        leftovers = blocking(what, move || {
            leftovers.retain(|path| files::remove_tree(path).is_err());
            Ok(leftovers)
        })
        .await?;
        if leftovers.is_empty() {
            break;
        }
        if attempt == MAX_ATTEMPTS {
            tracing::warn!(?leftovers, "the leftovers of layers could not be removed; the next start tries again");
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(images)
}

/// The directories of the installation, locked for this engine.
struct LockedDirectories {
    paths: InstallationPaths,
    data_lock: File,
    pool_lock: File,
}

/// Finds the directories of the installation and locks them for this engine. A process that a killed engine was
/// starting inherits the locks and keeps them until it executes its program, so this retries.
async fn lock_directories(data: &Path, run: &Path, pool: &Path) -> Result<LockedDirectories, Error> {
    let mut attempts = 0;
    loop {
        let (data, run, pool) = (data.to_owned(), run.to_owned(), pool.to_owned());
        let what = "the data directory of the local driver could not be opened";
        match blocking(what, move || try_lock_directories(&data, run, &pool)).await? {
            Err(Error::Retry(_)) if attempts < MAX_ATTEMPTS => tokio::time::sleep(PAUSE).await,
            locked => return locked,
        }
        attempts += 1;
    }
}

fn check_host_requirements(settings: &LocalSettings) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::Permanent(format!("the local driver {why}")));
    if !rustix::process::geteuid().is_root() {
        return refuse("must run as root: it creates namespaces, mounts and network interfaces");
    }
    if settings.helper.is_empty() || settings.guest.is_empty() {
        return refuse("has no helper program or no guest: this build is incomplete");
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if !Path::new("/proc/self/ns/user").exists() || read("/proc/sys/user/max_user_namespaces").trim() == "0" {
        return refuse("needs user namespaces, which the kernel lacks or which are disabled");
    }
    if !read("/proc/filesystems").lines().any(|line| line.ends_with("\toverlay")) && !Path::new("/lib/modules").exists()
    {
        return refuse("needs the overlay filesystem, which the kernel lacks");
    }
    if !Path::new("/sys/fs/cgroup").is_dir() {
        return refuse("needs control groups, and none are mounted");
    }
    Ok(())
}

fn try_lock_directories(data: &Path, run: PathBuf, pool: &Path) -> io::Result<Result<LockedDirectories, Error>> {
    fs::create_dir_all(data)?;
    let data = data.canonicalize()?;
    files::ensure_directory(&data.join("instances"), 0o700)?;
    let data_lock = File::create(data.join("instances.lock"))?;
    match data_lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Ok(Err(Error::Retry("another engine uses the data directory of the local driver".into())));
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let installation = installation::ensure_id(&data)?;
    let (pool, pool_lock) = match volumes::open_pool(&data, pool, &installation)? {
        Ok(opened) => opened,
        Err(refused) => return Ok(Err(refused)),
    };
    volumes::sweep_pool(&pool)?;
    let paths = InstallationPaths { installation, data, pool, run };
    Ok(Ok(LockedDirectories { paths, data_lock, pool_lock }))
}

/// Reads all records. A directory without a record is left over from a creation or a removal during which the engine
/// died.
fn load_records(paths: &InstallationPaths) -> io::Result<BTreeMap<InstanceId, Record>> {
    let mut records = BTreeMap::new();
    for entry in fs::read_dir(paths.instances())? {
        let path = entry?.path();
        match Record::load(&path)? {
            Some(record) if paths.instance_directory(&record.id) == path => {
                records.insert(record.id.clone(), record);
            }
            Some(_) => return Err(io::Error::other("a record is in the directory of another instance")),
            None => files::remove_tree(&path)?,
        }
    }
    Ok(records)
}

/// Removes everything without a record: it is left over from an engine that died between two steps.
async fn sweep_leftovers(host: &LocalHost) -> Result<(), Error> {
    let what = "the leftovers of a removed instance could not be removed";
    let paths = &host.paths;
    let known = |name: &str| name.parse::<InstanceId>().is_ok_and(|id| host.records().contains_key(&id));
    for name in cgroups::child_names(&paths.cgroups()).map_err(|error| failed(what, &error))? {
        if !known(&name) {
            let group = paths.cgroups().join(&name);
            cgroups::kill_all_processes(&group).await.map_err(|error| failed(what, &error))?;
            cgroups::remove_cgroup(&group).await.map_err(|error| failed(what, &error))?;
            disk::wait_until_released(&paths.instances().join(&name)).await?;
        }
    }
    for entry in fs::read_dir(paths.running()).into_iter().flatten().flatten() {
        if !known(&entry.file_name().to_string_lossy()) {
            files::remove_tree(&entry.path()).map_err(|error| failed(what, &error))?;
        }
    }
    let (slots, addresses) = host.records().values().map(|record| (record.slot, record.address)).unzip();
    host.network.sweep(&slots, &addresses).await?;
    if host.records().is_empty() {
        remove::remove_shared_resources(host).await?;
    }
    Ok(())
}

async fn ensure_host_image(host: &LocalHost) -> Result<(), Error> {
    let (images, skeletons) = (host.paths.host_images(), host.paths.skeletons());
    let used: Vec<_> = host.records().values().map(|record| record.image.clone()).collect();
    let what = "the host image could not be created";
    let is_used = move |path: &Path| used.iter().any(|image| image == path);
    let (own, own_used) = (images.clone(), is_used.clone());
    let is_settled =
        move || host_image::sweep_skeletons(&skeletons, own_used).and_then(|()| host_image::is_settled(&own));
    if blocking(what, is_settled).await? {
        return Ok(());
    }
    let private = host.private_paths.paths().await.map_err(|error| failed(what, &error))?;
    blocking(what, move || {
        host_image::sweep(&images, &private, is_used)?;
        host_image::ensure(&images, &private).map(drop)
    })
    .await
}
