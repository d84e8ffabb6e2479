//! One layer on its way: from the registry, through its digest, to the process that unpacks it. It is never whole in memory, nor
//! on disk but unpacked.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, XattrFlags, fsetxattr, open, openat2};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::cache::Images;
use super::progress::Progress;
use super::registries::reason;
use super::sources::{PAUSE, Sources, TRIES};
use crate::Error;
use crate::local::dialogue::{self, Helper};
use crate::local::engine::{Engine, blocking, failed};
use crate::local::helper::order::{Order, Report, Unpack, Unpacked};
use crate::local::ids;

/// How long a registry may be silent in the middle of a layer.
const STALL: Duration = Duration::from_secs(30);

/// Whoever has sent so much since the last trouble may have trouble again.
const WORTH: u64 = 1 << 20;

/// So many files, directories and links may be in a layer.
const MAX_ENTRIES: u64 = 2_000_000;

/// So many directories of a layer may hide what is below them.
const MAX_OPAQUE: usize = 100_000;

/// How long whoever unpacks may take to end by itself.
const END: Duration = Duration::from_secs(10);

const FAILED: &str = "an image could not be unpacked";

/// A layer that an image needs.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// The digest of what the registry has.
    pub(super) digest: String,
    /// The digest of its archive without compression.
    pub(super) archive: String,
    /// How long what the registry has is.
    pub(super) size: u64,
}

/// Makes a layer be there.
pub(super) async fn fetch(engine: &Engine, sources: &Sources, layer: &Layer, progress: &Progress) -> Result<(), Error> {
    // Whoever pulls the same one waits here, and finds it then.
    let _one_at_a_time = engine.lock(&format!("layer {}", layer.digest)).await;
    let images = &engine.images;
    if let Some(known) = images.use_layer(&layer.digest) {
        if known.archive != layer.archive {
            return Err(sources.does_not_match());
        }
        progress.add(layer.size);
        progress.finish_layer();
        return Ok(());
    }
    let _turn = images.turns.acquire().await.map_err(|_| Error::Retry("the engine is stopping".into()))?;
    let (number, place) = images.begin().map_err(|error| failed(FAILED, &error))?;
    let done = unpack(engine, sources, layer, (number, &place), progress).await;
    let (own, directory, wanted) = (engine.images.clone(), place.clone(), layer.clone());
    match done {
        Ok((unpacked, opaque)) => {
            let kept = blocking(FAILED, move || {
                hide_lower(&directory.join("root"), &opaque)?;
                own.keep(number, &directory, &wanted.digest, &wanted.archive, unpacked.bytes)
            });
            kept.await?;
            progress.finish_layer();
            Ok(())
        }
        Err(error) => {
            blocking(FAILED, move || own.drop_half(number, &directory)).await?;
            Err(error)
        }
    }
}

/// The digests of all layers that instances stand on.
pub(super) fn in_use(engine: &Engine) -> BTreeSet<String> {
    engine.records().values().filter_map(|record| record.container.as_ref()).flat_map(|c| c.layers.clone()).collect()
}

/// Lets a layer be unpacked while it comes.
async fn unpack(
    engine: &Engine,
    sources: &Sources,
    layer: &Layer,
    (number, place): (u64, &Path),
    progress: &Progress,
) -> Result<(Unpacked, Vec<Vec<u8>>), Error> {
    let room = engine.images.room(&in_use(engine));
    if room < layer.size {
        return Err(too_large(&engine.images, sources));
    }
    let order = Order::Unpack(Unpack {
        directory: place.join("root"),
        id_base: ids::UNPACKING,
        most_bytes: room,
        most_entries: MAX_ENTRIES,
    });
    let lost = |error: io::Error| failed(FAILED, &error);
    let mut helper = Helper::spawn(engine).map_err(lost)?;
    let ordered = helper.order(&order).await;
    let (mut child, input, mut output) = helper.into_parts();
    let done = async {
        ordered.map_err(lost)?;
        tokio::select! {
            done = carry(engine, sources, layer, number, (input, &mut output), progress) => done,
            () = progress.abandoned() => Err(Error::Retry("nobody waits for the image any more".into())),
        }
    };
    let done = done.await;
    // Its input is closed now, so that it ends; only then nobody writes there any more.
    if tokio::time::timeout(END, child.wait()).await.is_err() {
        let _gone = child.start_kill();
        let _ended = child.wait().await;
    }
    done
}

/// Sends and listens at once: whoever unpacks may have to say something in the middle of it.
async fn carry(
    engine: &Engine,
    sources: &Sources,
    layer: &Layer,
    number: u64,
    (input, output): (ChildStdin, &mut BufReader<ChildStdout>),
    progress: &Progress,
) -> Result<(Unpacked, Vec<Vec<u8>>), Error> {
    let sending = send(sources, layer, input, progress);
    let hearing = listen(engine, sources, layer, number, output);
    tokio::pin!(sending, hearing);
    tokio::select! {
        sent = &mut sending => match sent {
            Ok(()) => hearing.await,
            // It reads no more, and says why.
            Err(Sending::Closed) => Err(hearing.await.err().unwrap_or_else(|| sources.does_not_match())),
            Err(Sending::Failed(error)) => Err(error),
        },
        heard = &mut hearing => match (heard?, sending.await) {
            (heard, Ok(())) => Ok(heard),
            (_, Err(Sending::Failed(error))) => Err(error),
            (_, Err(Sending::Closed)) => Err(sources.does_not_match()),
        },
    }
}

/// Why a layer was not sent.
enum Sending {
    /// Nobody reads any more.
    Closed,
    /// The registry did not give it, or gave something else.
    Failed(Error),
}

/// Sends a layer to whoever unpacks it, and goes on where it was when the registry breaks off.
async fn send(sources: &Sources, layer: &Layer, mut input: ChildStdin, progress: &Progress) -> Result<(), Sending> {
    let (mut sum, mut at, mut troubles, mut safe) = (Sha256::new(), 0, 0, 0);
    loop {
        let mut given = sources.layer(&layer.digest, at).await.map_err(Sending::Failed)?;
        // One that cannot begin in the middle begins anew.
        let mut skip = if given.answer.status() == reqwest::StatusCode::PARTIAL_CONTENT { 0 } else { at };
        let trouble = loop {
            let piece = match tokio::time::timeout(STALL, given.answer.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break "it broke off".to_owned(),
                Ok(Err(error)) => break reason(&error),
                Err(_) => break "it fell silent".to_owned(),
            };
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= skipped as u64;
            let piece = &piece[skipped..];
            at += piece.len() as u64;
            if at > layer.size {
                return Err(Sending::Failed(sources.does_not_match()));
            }
            sum.update(piece);
            input.write_all(piece).await.map_err(|_| Sending::Closed)?;
            progress.add(piece.len() as u64);
        };
        if at == layer.size {
            break;
        }
        if sources.left_off(&given, &trouble) {
            continue;
        }
        troubles = if at - safe >= WORTH { 1 } else { troubles + 1 };
        safe = at;
        if troubles >= TRIES {
            return Err(Sending::Failed(sources.broke_off(&trouble)));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let digest: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != layer.digest {
        return Err(Sending::Failed(sources.does_not_match()));
    }
    Ok(())
}

/// Hears what was unpacked: what it takes, and which directories hide what is below them.
async fn listen(
    engine: &Engine,
    sources: &Sources,
    layer: &Layer,
    number: u64,
    output: &mut BufReader<ChildStdout>,
) -> Result<(Unpacked, Vec<Vec<u8>>), Error> {
    let mut opaque = Vec::new();
    loop {
        match dialogue::hear(output).await.map_err(|error| failed(FAILED, &error))? {
            Report::Opaque { path } if opaque.len() < MAX_OPAQUE => opaque.push(path),
            Report::Grown { bytes } => grow(engine, sources, number, bytes).await?,
            Report::Unpacked(unpacked) if unpacked.digest != layer.archive => return Err(sources.does_not_match()),
            Report::Unpacked(unpacked) => {
                grow(engine, sources, number, unpacked.bytes).await?;
                if unpacked.devices > 0 {
                    tracing::info!(image = sources.name, devices = unpacked.devices, "device files were left out");
                }
                return Ok((unpacked, opaque));
            }
            Report::Unfit { reason } => {
                return Err(Error::Permanent(format!(
                    "{} cannot be used: a layer is not right: {reason}",
                    sources.name
                )));
            }
            _ => return Err(failed(FAILED, &io::Error::other("the helper answered another question"))),
        }
    }
}

async fn grow(engine: &Engine, sources: &Sources, number: u64, bytes: u64) -> Result<(), Error> {
    let (images, in_use) = (engine.images.clone(), in_use(engine));
    match blocking(FAILED, move || images.grow(number, bytes, &in_use)).await? {
        true => Ok(()),
        false => Err(too_large(&engine.images, sources)),
    }
}

fn too_large(images: &Images, sources: &Sources) -> Error {
    let gigabytes = images.settings.cache_bytes as f64 / 1e9;
    Error::Permanent(format!(
        "{} is too large: the cache of images has {gigabytes:.1} GB, and what instances use of it stays there",
        sources.name
    ))
}

/// Marks directories of a layer as hiding what lower layers have there, which only the machine's `root` may. The layer chose
/// the paths, so they are looked up in its tree as if that were all there is.
fn hide_lower(tree: &Path, opaque: &[Vec<u8>]) -> io::Result<()> {
    let root = open(tree, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    for path in opaque {
        let path = if path.is_empty() { b"." } else { path.as_slice() };
        match openat2(&root, path, flags, Mode::empty(), resolve) {
            Ok(directory) => fsetxattr(&directory, c"trusted.overlay.opaque", b"y", XattrFlags::empty())?,
            // Something else has come to its place since.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
