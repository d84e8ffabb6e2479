//! What an engine would observe, read without one: nothing is locked, removed or created, so it may be called beside a
//! running engine. Objects that are being created or removed at that moment may look left over, so the caller reads
//! twice before reporting them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::local::host::paths::InstallationPaths;
use crate::local::host::{cgroups, loop_device};
use crate::local::instance::observe;
use crate::local::instance::record::Record;
use crate::local::network::{Prefix, survey};
use crate::local::{installation, volumes};
use crate::{Error, Observed};

/// A snapshot of an installation.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The id that all its objects carry.
    pub installation: String,
    pub observed: Observed,
    /// Descriptions of objects that carry its id and belong to no record.
    pub leftovers: Vec<String>,
    /// `None` if the pool cannot be read.
    pub pool: Option<Pool>,
}

/// The usage of the volume pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Free space on its disk.
    pub free_bytes: u64,
    /// Space used by volumes.
    pub taken_bytes: u64,
    /// The total size of all volumes.
    pub promised_bytes: u64,
}

/// Reads a snapshot of the installation with this data directory; `None` if there is none.
pub async fn snapshot(data: &Path, pool: &Path, run: &Path) -> Result<Option<Snapshot>, Error> {
    let (data, pool, run) = (data.to_owned(), pool.to_owned(), run.to_owned());
    let seen = tokio::task::spawn_blocking(move || read_snapshot(&data, pool, run)).await;
    let seen = seen.map_err(|error| Error::Retry(format!("the host could not be examined: {error}")))?;
    let Some((places, records, mut snapshot)) = seen? else { return Ok(None) };
    let (slots, addresses): (Vec<_>, Vec<_>) = records.iter().map(|record| (record.slot, record.address)).unzip();
    let known = survey::expected_link_names(&places.installation, &slots, &addresses)?;
    let (interfaces, table) = survey::existing_objects(&places.installation).await?;
    let strange = interfaces.into_iter().filter(|name| !known.contains(name));
    snapshot.leftovers.extend(strange.map(|name| format!("the interface {name}")));
    let unneeded = table.filter(|_| records.is_empty());
    snapshot.leftovers.extend(unneeded.map(|table| format!("the firewall table inet {table}")));
    Ok(Some(snapshot))
}

/// Returns the id of the installation with this data directory.
pub(super) fn installation_id(data: &Path) -> Option<String> {
    installation::existing_id(data).ok().flatten()
}

/// Returns the prefix of its instances' addresses, if it has any instances.
pub(super) fn remembered_prefix(data: &Path) -> Option<Prefix> {
    let entries = fs::read_dir(data.join("instances")).into_iter().flatten().flatten();
    let mut records = entries.filter_map(|entry| Record::load(&entry.path()).ok().flatten());
    records.next().map(|record| Prefix::of(record.address))
}

type ReadSnapshot = (InstallationPaths, Vec<Record>, Snapshot);

fn read_snapshot(data: &Path, pool: PathBuf, run: PathBuf) -> Result<Option<ReadSnapshot>, Error> {
    let failed = |error: io::Error| Error::Retry(format!("{} cannot be read: {error}", data.display()));
    let Some(installation) = installation::existing_id(data).map_err(failed)? else { return Ok(None) };
    let data = data.canonicalize().map_err(failed)?;
    let places =
        InstallationPaths { installation: installation.clone(), pool: pool.canonicalize().unwrap_or(pool), data, run };
    let (records, mut leftovers) = read_records(&places).map_err(failed)?;
    let mut observed = Observed::default();
    for record in &records {
        observed.instances.insert(record.id.clone(), observe::observe_from_paths(&places, record)?);
    }
    let is_known = |name: &str| records.iter().any(|record| record.id.as_str() == name);
    let groups = cgroups::child_names(&places.cgroups()).unwrap_or_default();
    let group = |name: String| format!("the control group {}", places.cgroups().join(name).display());
    leftovers.extend(groups.into_iter().filter(|name| !is_known(name)).map(group));
    for entry in fs::read_dir(places.running()).into_iter().flatten().flatten() {
        if !is_known(&entry.file_name().to_string_lossy()) {
            leftovers.push(format!("the directory {}", entry.path().display()));
        }
    }
    let mut devices = loop_device::abandoned_devices(&places.instances()).map_err(failed)?;
    let mut numbers = None;
    if places.pool.exists() {
        observed.volumes = volumes::observe_pool(&places).map_err(failed)?;
        let used = volumes::measure_pool(&places).map_err(failed)?;
        let volumes::PoolUsage { free_bytes, taken_bytes, promised_bytes } = used;
        numbers = Some(Pool { free_bytes, taken_bytes, promised_bytes });
        let half = volumes::unfinished_entries(&places.pool).map_err(failed)?;
        leftovers.extend(half.iter().map(|path| format!("the incomplete volume {}", path.display())));
        devices.extend(loop_device::abandoned_devices(&places.pool).map_err(failed)?);
    }
    // The pool may be inside the data directory; each device is listed once.
    devices.sort();
    devices.dedup();
    leftovers.extend(devices.into_iter().map(|(device, file)| format!("the loop device {device} of {file}")));
    Ok(Some((places, records, Snapshot { installation, observed, leftovers, pool: numbers })))
}

/// Reads the records; also returns the directories without one.
fn read_records(places: &InstallationPaths) -> io::Result<(Vec<Record>, Vec<String>)> {
    let (mut records, mut bare) = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(places.instances()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((records, bare)),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        match Record::load(&path)? {
            Some(record) => records.push(record),
            // A directory that is gone by now was just being removed.
            None if path.exists() => bare.push(format!("the directory {}", path.display())),
            None => {}
        }
    }
    Ok((records, bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without an installation nothing is read or created.
    #[tokio::test]
    async fn empty_directory_has_no_snapshot() {
        let data = tempfile::tempdir().unwrap();
        let seen = snapshot(data.path(), &data.path().join("volumes"), Path::new("/run/tarn")).await.unwrap();
        assert!(seen.is_none());
        assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn directories_without_record_are_leftovers() {
        let (data, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(data.path().join("installation"), "zzzzzz").unwrap();
        fs::create_dir_all(data.path().join("instances/i-0123456789ab")).unwrap();
        fs::create_dir_all(run.path().join("zzzzzz/i-0123456789ab")).unwrap();
        if !crate::local::examine::is_root() {
            eprintln!("skipped: the firewall is for root only");
            return;
        }
        let seen = snapshot(data.path(), &data.path().join("volumes"), run.path()).await.unwrap().unwrap();
        assert_eq!(seen.leftovers.len(), 2, "{:?}", seen.leftovers);
        assert!(seen.observed.instances.is_empty() && seen.pool.is_none());
    }
}
