//! One layer on its way: from the registry, through its digest, to the process that unpacks it. It is never whole in memory, nor
//! on disk but unpacked.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::opaque_directories::Opaque;
use super::progress::Progress;
use super::transfer::{Sending, send};
use super::unpack_permits::Turn;
use crate::Error;
use crate::local::dialogue::{self, Helper};
use crate::local::helper::order::{Order, Report, Unpack, Unpacked};
use crate::local::ids;
use crate::local::images::cache::Known;
use crate::local::images::cache::eviction::Fits;
use crate::local::images::registry::sources::Sources;
use crate::local::local_host::{LocalHost, blocking, failed};

/// So many files, directories and links may be in a layer.
const MAX_ENTRIES: u64 = 2_000_000;

/// How long whoever unpacks may take to end by itself, and to be gone when it is ended.
const END: Duration = Duration::from_secs(10);

/// How long whoever unpacks may take nothing, or say nothing when it has everything.
pub(super) const SILENCE: Duration = Duration::from_secs(600);

/// How often the disk is looked at while a layer grows. Whoever unpacks may have been taken over, and say nothing of it.
const LOOK: Duration = Duration::from_millis(500);

const FAILED: &str = "an image could not be unpacked";

/// A layer that an image needs.
#[derive(Clone, Debug)]
pub(in crate::local::images) struct Layer {
    /// The digest of what the registry has.
    pub(in crate::local::images) digest: String,
    /// The digest of its archive without compression.
    pub(in crate::local::images) archive: String,
    /// How long what the registry has is.
    pub(in crate::local::images) size: u64,
}

/// A pull that is under way.
pub(in crate::local::images) struct Pull<'a> {
    pub(in crate::local::images) host: &'a LocalHost,
    pub(in crate::local::images) sources: &'a Sources,
    /// The registry that has the image.
    pub(in crate::local::images) registry: &'a str,
    /// All layers of the image.
    pub(in crate::local::images) layers: &'a [String],
    pub(in crate::local::images) progress: Progress,
}

/// Makes a layer be there.
pub(in crate::local::images) async fn fetch(pull: &Pull<'_>, layer: &Layer) -> Result<(), Error> {
    let images = &pull.host.images;
    // Whoever pulls the same one waits here, and finds it then. But nobody waits for what another registry may never send.
    let name = format!("layer {} of {}", layer.digest, pull.registry);
    let _one_at_a_time = pull.unless_given_up(pull.host.lock(&name)).await?;
    if pull.is_there(layer)? {
        return Ok(());
    }
    let turn = match images.turns.at_once() {
        Some(turn) => turn,
        None => pull.unless_given_up(pull.progress.waiting(images.turns.wait())).await??,
    };
    if pull.is_there(layer)? {
        return Ok(());
    }
    let (number, place) = images.begin(&layer.digest).map_err(|error| failed(FAILED, &error))?;
    let done = bring(pull, layer, (number, &place), turn).await;
    if done.is_err() {
        let (own, directory) = (images.clone(), place.clone());
        // Why it failed is what counts; this one is in the log, and is tried again when the engine starts.
        let _logged =
            blocking("what is left of a layer could not be removed", move || own.drop_half(number, &directory)).await;
    }
    done
}

impl Pull<'_> {
    /// Waits for something for as long as somebody waits for the pull.
    async fn unless_given_up<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        tokio::select! {
            done = work => Ok(done),
            () = self.progress.abandoned() => Err(Error::Retry("nobody waits for the image any more".into())),
        }
    }

    fn is_there(&self, layer: &Layer) -> Result<bool, Error> {
        let Some(known) = self.host.images.use_layer(&layer.digest) else { return Ok(false) };
        if !known.archive.is_empty() && known.archive != layer.archive {
            return Err(self.sources.does_not_match());
        }
        self.progress.add(layer.size);
        self.progress.finish_layer();
        Ok(true)
    }

    fn unfit(&self, why: &str) -> Error {
        Error::Permanent(format!("{} cannot be used: a layer is not right: {why}", self.sources.name))
    }

    pub(super) fn takes_too_long(&self) -> Error {
        self.unfit(&format!("it was not unpacked within {} minutes", SILENCE.as_secs() / 60))
    }

    /// What the owner is told when a layer needs at least so much, and there is no room for it. Only an image that would not fit
    /// alone is refused for good: others go, and so does what they take.
    fn no_room(&self, number: u64, needs: u64, is_of_disk: bool) -> Error {
        let (images, name) = (&self.host.images, &self.sources.name);
        let most = images.settings.cache_bytes;
        let gigabytes = most as f64 / 1e9;
        if images.others(self.layers, number).saturating_add(needs) > most {
            return Error::Permanent(format!(
                "{name} is too large: unpacked, it takes more than the {gigabytes:.1} GB that the cache of images has; \
                 the operator can give it more (images.cache_gb)"
            ));
        }
        if is_of_disk {
            return Error::Retry(format!(
                "{name} waits for room: the disk of the machine is nearly full, and the operator has to make room on it"
            ));
        }
        Error::Retry(format!(
            "{name} waits for room in the cache of images: other images and instances use too much of its {gigabytes:.1} GB"
        ))
    }

    /// Evicts what nobody needs until everything fits that is there and that is coming.
    async fn make_room(&self, number: u64, needs: u64) -> Result<(), Error> {
        let images = &self.host.images;
        loop {
            match images.evict(|| in_use(self.host)).map_err(|error| failed(FAILED, &error))? {
                Fits::Yes => return Ok(()),
                Fits::Without(away) => {
                    let own = images.clone();
                    blocking(FAILED, move || own.clear(&away)).await?;
                }
                Fits::NotInCache => return Err(self.no_room(number, needs, false)),
                Fits::NotOnDisk => return Err(self.no_room(number, needs, true)),
            }
        }
    }

    /// Ends only when there is no room any more.
    async fn watch_room(&self, number: u64) -> Error {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Err(error) = self.make_room(number, 0).await {
                return error;
            }
        }
    }
}

/// The digests of all layers that instances stand on.
fn in_use(host: &LocalHost) -> BTreeSet<String> {
    host.records().values().filter_map(|record| record.container.as_ref()).flat_map(|c| c.layers.clone()).collect()
}

/// Lets a layer be unpacked, and gives it its name.
async fn bring(pull: &Pull<'_>, layer: &Layer, (number, place): (u64, &Path), mut turn: Turn<'_>) -> Result<(), Error> {
    let (unpacked, opaque) = unpack(pull, layer, (number, place), &mut turn).await?;
    let (own, directory, wanted) = (pull.host.images.clone(), place.to_owned(), layer.clone());
    let kept = blocking(FAILED, move || {
        let hides_all = opaque.hide_lower(&directory.join("root"))?;
        let known = Known::new(wanted.archive, unpacked.bytes, hides_all);
        own.keep(number, &directory, &wanted.digest, known)
    });
    kept.await?;
    pull.progress.finish_layer();
    Ok(())
}

/// Lets a layer be unpacked while it comes. Nobody writes there any more when this returns.
async fn unpack(
    pull: &Pull<'_>,
    layer: &Layer,
    (number, place): (u64, &Path),
    turn: &mut Turn<'_>,
) -> Result<(Unpacked, Opaque), Error> {
    let lost = |error: io::Error| failed(FAILED, &error);
    let room = pull.host.images.room(|| in_use(pull.host)).map_err(lost)?;
    if room.bytes < layer.size {
        return Err(pull.no_room(number, layer.size, room.is_of_disk));
    }
    let order = Order::Unpack(Unpack {
        directory: place.join("root"),
        id_base: ids::UNPACKING,
        most_bytes: room.bytes,
        most_entries: MAX_ENTRIES,
    });
    let mut helper = Helper::spawn(pull.host).map_err(lost)?;
    let ordered = helper.order(&order).await;
    let (child, input, mut output) = helper.into_parts();
    let done = async {
        ordered.map_err(lost)?;
        let carried = carry(pull, layer, number, (input, &mut output), turn);
        tokio::select! {
            done = pull.unless_given_up(carried) => match done? {
                Err(Heard::Full) => Err(pull.no_room(number, room.bytes.saturating_add(1), room.is_of_disk)),
                Err(Heard::Failed(error)) => Err(error),
                Ok(done) => Ok(done),
            },
            error = pull.watch_room(number) => Err(error),
        }
    };
    let done = done.await;
    end(child, output, done.is_ok()).await;
    done
}

/// Waits until nobody can write to the layer any more: whoever unpacks has the output open for as long as it lives. One that has not
/// done its work is ended.
async fn end(mut child: Child, mut output: BufReader<ChildStdout>, is_done: bool) {
    let mut rest = [0; 4096];
    let mut is_open = true;
    for is_ended in [!is_done, true] {
        if is_ended {
            let _gone = child.start_kill();
        }
        let closed = async { while output.read(&mut rest).await.is_ok_and(|length| length > 0) {} };
        is_open = is_open && timeout(END, closed).await.is_err();
        if !is_open {
            break;
        }
    }
    if is_open {
        tracing::warn!("whoever unpacked a layer does not end");
    }
    let _ended = child.wait().await;
}

/// What is heard instead of a layer.
enum Heard {
    /// There is not enough room for it.
    Full,
    Failed(Error),
}

/// Sends and listens at once: whoever unpacks may have to say something in the middle of it.
async fn carry(
    pull: &Pull<'_>,
    layer: &Layer,
    number: u64,
    (input, output): (ChildStdin, &mut BufReader<ChildStdout>),
    turn: &mut Turn<'_>,
) -> Result<(Unpacked, Opaque), Heard> {
    let sending = send(pull, layer, input, turn);
    let hearing = listen(pull, layer, number, output);
    tokio::pin!(sending, hearing);
    let does_not_match = || Heard::Failed(pull.sources.does_not_match());
    tokio::select! {
        sent = &mut sending => match (sent, timeout(SILENCE, hearing)) {
            (Ok(()), hearing) => hearing.await.unwrap_or_else(|_| Err(Heard::Failed(pull.takes_too_long()))),
            // It reads no more, and says why.
            (Err(Sending::Closed), hearing) => match hearing.await {
                Ok(heard) => Err(heard.err().unwrap_or_else(does_not_match)),
                Err(_) => Err(Heard::Failed(pull.takes_too_long())),
            },
            (Err(Sending::Failed(error)), _) => Err(Heard::Failed(error)),
        },
        heard = &mut hearing => match (heard?, sending.await) {
            (heard, Ok(())) => Ok(heard),
            (_, Err(Sending::Failed(error))) => Err(Heard::Failed(error)),
            (_, Err(Sending::Closed)) => Err(does_not_match()),
        },
    }
}

/// Hears what was unpacked: what it takes, and which directories hide what is below them.
async fn listen(
    pull: &Pull<'_>,
    layer: &Layer,
    number: u64,
    output: &mut BufReader<ChildStdout>,
) -> Result<(Unpacked, Opaque), Heard> {
    let mut opaque = Opaque::default();
    let grow = async |bytes| {
        pull.host.images.note(number, &layer.digest, bytes);
        pull.make_room(number, bytes).await.map_err(Heard::Failed)
    };
    loop {
        match dialogue::hear(output).await.map_err(|error| Heard::Failed(failed(FAILED, &error)))? {
            Report::Opaque { path } => {
                opaque.add(&path).map_err(|why| Heard::Failed(pull.unfit(why)))?;
            }
            Report::Grown { bytes } => grow(bytes).await?,
            Report::Unpacked(unpacked) if unpacked.digest != layer.archive => {
                return Err(Heard::Failed(pull.sources.does_not_match()));
            }
            Report::Unpacked(unpacked) => {
                grow(unpacked.bytes).await?;
                if unpacked.devices > 0 {
                    tracing::info!(image = pull.sources.name, devices = unpacked.devices, "device files were left out");
                }
                return Ok((unpacked, opaque));
            }
            Report::Full => return Err(Heard::Full),
            Report::Unfit { reason } => return Err(Heard::Failed(pull.unfit(&reason))),
            _ => {
                let error = io::Error::other("the helper answered another question");
                return Err(Heard::Failed(failed(FAILED, &error)));
            }
        }
    }
}
