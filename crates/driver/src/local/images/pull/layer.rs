//! One layer: from the registry, through its digest, to the process that unpacks it. The compressed layer is never
//! completely in memory or on disk.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::opaque_directories::OpaqueDirectories;
use super::progress::Progress;
use super::transfer::{TransferError, send_layer};
use super::turns::LayerTurns;
use crate::Error;
use crate::local::helper::order::{Order, Report, Unpack, Unpacked};
use crate::local::helper_process::{self, HelperProcess};
use crate::local::host::id_ranges;
use crate::local::images::cache::CachedLayer;
use crate::local::images::cache::eviction::FitResult;
use crate::local::images::registry::sources::Sources;
use crate::local::local_host::{LocalHost, blocking, failed};

/// The maximum number of files, directories and links in a layer.
const MAX_ENTRIES: u64 = 2_000_000;

/// How long the unpacking process may take to end by itself, and to be gone after it was killed.
const UNPACKER_END_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the unpacking process may accept no data, or send no report after it has received everything.
pub(super) const UNPACKER_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// How often the free space is checked while a layer grows. A hostile layer may have taken over the unpacking process,
/// which then does not report its growth.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_millis(500);

const FAILED: &str = "an image could not be unpacked";

/// A layer of an image.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// The digest of the blob in the registry.
    pub(in crate::local::images) digest: String,
    /// The digest of the uncompressed archive.
    pub(in crate::local::images) archive: String,
    /// The size of the blob in the registry.
    pub(in crate::local::images) size: u64,
}

/// A pull in progress.
pub(super) struct Pull<'a> {
    pub(in crate::local::images) host: &'a LocalHost,
    pub(in crate::local::images) sources: &'a Sources,
    /// The registry of the image.
    pub(in crate::local::images) registry: &'a str,
    /// Whose turn it is.
    pub(in crate::local::images) share: &'a Arc<str>,
    /// All layers of the image.
    pub(in crate::local::images) layers: &'a [String],
    pub(in crate::local::images) progress: Progress,
}

/// Ensures a layer is in the cache.
pub(super) async fn fetch_layer(pull: &Pull<'_>, layer: &Layer) -> Result<(), Error> {
    let images = &pull.host.images;
    // Another pull of the same layer waits here, and then finds it in the cache. Pulls from different registries do not
    // wait for each other, because one of them may never deliver; pulls of different shares do not either, because one
    // of them may rarely have its turn.
    let name = format!("layer {} of {} for {}", layer.digest, pull.registry, pull.share);
    let _one_at_a_time = pull.unless_abandoned(pull.host.lock(&name)).await?;
    if pull.is_layer_cached(layer)? {
        return Ok(());
    }
    let turns = images.turns.enter(pull.share);
    if !turns.has_begun() {
        pull.unless_abandoned(pull.progress.report_while_waiting(turns.wait_until_begun())).await?;
    }
    if pull.is_layer_cached(layer)? {
        return Ok(());
    }
    let (number, place) = images.begin_layer(&layer.digest).map_err(|error| failed(FAILED, &error))?;
    let done = unpack_and_publish(pull, layer, (number, &place), turns).await;
    if done.is_err() {
        let (own, directory) = (images.clone(), place.clone());
        // The original failure is reported; this one is logged, and the next start of the engine removes the rest.
        let _logged = blocking("what is left of a layer could not be removed", move || {
            own.discard_partial_layer(number, &directory)
        })
        .await;
    }
    done
}

impl Pull<'_> {
    /// Runs `work` for as long as a caller waits for the pull.
    async fn unless_abandoned<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            done = work => Ok(done),
            () = self.progress.wait_until_abandoned() => {
                Err(Error::Retry("the request no longer waits for the image".into()))
            }
        }
    }

    fn is_layer_cached(&self, layer: &Layer) -> Result<bool, Error> {
        let Some(known) = self.host.images.use_layer(&layer.digest) else { return Ok(false) };
        if !known.archive.is_empty() && known.archive != layer.archive {
            return Err(self.sources.digest_mismatch());
        }
        self.progress.add_bytes(layer.size);
        self.progress.finish_layer();
        Ok(true)
    }

    fn unusable_layer(&self, why: &str) -> Error {
        Error::Permanent(format!("{} cannot be used: a layer is invalid: {why}", self.sources.name))
    }

    pub(super) fn unpack_timeout_error(&self) -> Error {
        self.unusable_layer(&format!("it was not unpacked within {} minutes", UNPACKER_IDLE_TIMEOUT.as_secs() / 60))
    }

    /// Returns the error for a layer that needs at least `needs` bytes, for which there is no space. Only an image that
    /// would not fit alone is refused permanently: others get evicted.
    fn no_space_error(&self, number: u64, needs: u64, is_disk_bound: bool) -> Error {
        let (images, name) = (&self.host.images, &self.sources.name);
        let most = images.settings.cache_bytes;
        let gigabytes = most as f64 / 1e9;
        if images.bytes_besides_layer(self.layers, number).saturating_add(needs) > most {
            return Error::Permanent(format!(
                "{name} is too large: unpacked, it takes more than the {gigabytes:.1} GB of the image cache; \
                 the operator can give it more (images.cache_gb)"
            ));
        }
        if is_disk_bound {
            return Error::Retry(format!(
                "{name} waits for space: the disk of the host is nearly full, and the operator has to free space on it"
            ));
        }
        Error::Retry(format!(
            "{name} waits for space in the image cache: other images and instances use too much of its \
             {gigabytes:.1} GB"
        ))
    }

    /// Evicts unused layers until everything fits that is cached or being unpacked.
    async fn make_space(&self, number: u64, needs: u64) -> Result<(), Error> {
        let images = &self.host.images;
        loop {
            match images.evict_one_layer(|| layers_in_use(self.host)).map_err(|error| failed(FAILED, &error))? {
                FitResult::Yes => return Ok(()),
                FitResult::AfterRemoving(evicted_path) => {
                    let own = images.clone();
                    blocking(FAILED, move || own.remove_evicted_layer(&evicted_path)).await?;
                }
                FitResult::NotInCache => return Err(self.no_space_error(number, needs, false)),
                FitResult::NotOnDisk => return Err(self.no_space_error(number, needs, true)),
            }
        }
    }

    /// Returns only when there is no space left.
    async fn watch_space(&self, number: u64) -> Error {
        loop {
            tokio::time::sleep(SPACE_CHECK_INTERVAL).await;
            if let Err(error) = self.make_space(number, 0).await {
                return error;
            }
        }
    }
}

/// Returns the digests of all layers that instances use.
fn layers_in_use(host: &LocalHost) -> BTreeSet<String> {
    host.records().values().filter_map(|record| record.container.as_ref()).flat_map(|c| c.layers.clone()).collect()
}

/// Unpacks a layer and publishes it in the cache.
async fn unpack_and_publish(
    pull: &Pull<'_>,
    layer: &Layer,
    (number, place): (u64, &Path),
    mut turns: LayerTurns<'_>,
) -> Result<(), Error> {
    let (unpacked, opaque) = unpack_layer(pull, layer, (number, place), &mut turns).await?;
    let (own, directory, wanted) = (pull.host.images.clone(), place.to_owned(), layer.clone());
    let kept = blocking(FAILED, move || {
        let hides_all = opaque.mark_opaque(&directory.join("root"))?;
        let known = CachedLayer::new(wanted.archive, unpacked.bytes, hides_all);
        own.publish_layer(number, &directory, &wanted.digest, known)
    });
    kept.await?;
    pull.progress.finish_layer();
    Ok(())
}

/// Unpacks a layer while it is being received. Nothing writes to its directory any more when this returns.
async fn unpack_layer(
    pull: &Pull<'_>,
    layer: &Layer,
    (number, place): (u64, &Path),
    turns: &mut LayerTurns<'_>,
) -> Result<(Unpacked, OpaqueDirectories), Error> {
    let lost = |error: io::Error| failed(FAILED, &error);
    let space = pull.host.images.available_space(|| layers_in_use(pull.host)).map_err(lost)?;
    if space.bytes < layer.size {
        return Err(pull.no_space_error(number, layer.size, space.is_disk_bound));
    }
    let order = Order::Unpack(Unpack {
        directory: place.join("root"),
        id_base: id_ranges::UNPACKING,
        most_bytes: space.bytes,
        most_entries: MAX_ENTRIES,
    });
    let mut helper = HelperProcess::spawn(pull.host).map_err(lost)?;
    let ordered = helper.send_order(&order).await;
    let (child, input, mut output) = helper.into_parts();
    let done = async {
        ordered.map_err(lost)?;
        let transfer = transfer_and_listen(pull, layer, number, (input, &mut output), turns);
        tokio::select! {
            done = pull.unless_abandoned(transfer) => match done? {
                Err(UnpackFailure::Full) => {
                    Err(pull.no_space_error(number, space.bytes.saturating_add(1), space.is_disk_bound))
                }
                Err(UnpackFailure::Failed(error)) => Err(error),
                Ok(done) => Ok(done),
            },
            error = pull.watch_space(number) => Err(error),
        }
    };
    let done = done.await;
    end_unpacker(child, output, done.is_ok()).await;
    done
}

/// Waits until nothing can write to the layer any more: the unpacking process keeps the output open for as long as it
/// lives. A process that has not finished its work is killed.
async fn end_unpacker(mut child: Child, mut output: BufReader<ChildStdout>, is_done: bool) {
    let mut rest = [0; 4096];
    let mut is_open = true;
    for is_ended in [!is_done, true] {
        if is_ended {
            let _gone = child.start_kill();
        }
        let closed = async { while output.read(&mut rest).await.is_ok_and(|length| length > 0) {} };
        is_open = is_open && timeout(UNPACKER_END_TIMEOUT, closed).await.is_err();
        if !is_open {
            break;
        }
    }
    if is_open {
        tracing::warn!("the process that unpacked a layer does not end");
    }
    let _ended = child.wait().await;
}

/// Why a layer was not unpacked.
enum UnpackFailure {
    /// There is not enough space.
    Full,
    Failed(Error),
}

/// Sends and reads reports at the same time: the unpacking process may report in the middle of a layer.
async fn transfer_and_listen(
    pull: &Pull<'_>,
    layer: &Layer,
    number: u64,
    (input, output): (ChildStdin, &mut BufReader<ChildStdout>),
    turns: &mut LayerTurns<'_>,
) -> Result<(Unpacked, OpaqueDirectories), UnpackFailure> {
    let sending = send_layer(pull, layer, input, turns);
    let reading_reports = read_unpack_reports(pull, layer, number, output);
    tokio::pin!(sending, reading_reports);
    let digest_mismatch = || UnpackFailure::Failed(pull.sources.digest_mismatch());
    tokio::select! {
        sent = &mut sending => match (sent, timeout(UNPACKER_IDLE_TIMEOUT, reading_reports)) {
            (Ok(()), reading_reports) => {
                reading_reports.await.unwrap_or_else(|_| Err(UnpackFailure::Failed(pull.unpack_timeout_error())))
            }
            // It has stopped reading, and its report tells why.
            (Err(TransferError::Closed), reading_reports) => match reading_reports.await {
                Ok(outcome) => Err(outcome.err().unwrap_or_else(digest_mismatch)),
                Err(_) => Err(UnpackFailure::Failed(pull.unpack_timeout_error())),
            },
            (Err(TransferError::Failed(error)), _) => Err(UnpackFailure::Failed(error)),
        },
        outcome = &mut reading_reports => match (outcome?, sending.await) {
            (outcome, Ok(())) => Ok(outcome),
            (_, Err(TransferError::Failed(error))) => Err(UnpackFailure::Failed(error)),
            (_, Err(TransferError::Closed)) => Err(digest_mismatch()),
        },
    }
}

/// Reads the reports of the unpacking process: the size, and the opaque directories.
async fn read_unpack_reports(
    pull: &Pull<'_>,
    layer: &Layer,
    number: u64,
    output: &mut BufReader<ChildStdout>,
) -> Result<(Unpacked, OpaqueDirectories), UnpackFailure> {
    let mut opaque = OpaqueDirectories::default();
    let grow = async |bytes| {
        pull.host.images.record_layer_size(number, &layer.digest, bytes);
        pull.make_space(number, bytes).await.map_err(UnpackFailure::Failed)
    };
    loop {
        match helper_process::read_report(output)
            .await
            .map_err(|error| UnpackFailure::Failed(failed(FAILED, &error)))?
        {
            Report::Opaque { path } => {
                opaque.add_path(&path).map_err(|why| UnpackFailure::Failed(pull.unusable_layer(why)))?;
            }
            Report::Grown { bytes } => grow(bytes).await?,
            Report::Unpacked(unpacked) if unpacked.digest != layer.archive => {
                return Err(UnpackFailure::Failed(pull.sources.digest_mismatch()));
            }
            Report::Unpacked(unpacked) => {
                grow(unpacked.bytes).await?;
                if unpacked.devices > 0 {
                    tracing::info!(image = pull.sources.name, devices = unpacked.devices, "device files were left out");
                }
                return Ok((unpacked, opaque));
            }
            Report::Full => return Err(UnpackFailure::Full),
            Report::Unfit { reason } => return Err(UnpackFailure::Failed(pull.unusable_layer(&reason))),
            _ => {
                let error = io::Error::other("the helper sent an unexpected report");
                return Err(UnpackFailure::Failed(failed(FAILED, &error)));
            }
        }
    }
}
