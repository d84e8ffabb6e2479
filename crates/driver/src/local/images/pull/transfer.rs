//! The transfer of a layer from the registry to the unpacking process, through its digest.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::time::{Instant, timeout};

use super::layer::{Layer, Pull, UNPACKER_IDLE_TIMEOUT};
use super::turns::{LayerTurns, MIN_RATE, TransferEnd};
use crate::Error;
use crate::local::images::registry::responses::root_cause;

/// How long a registry may send nothing in the middle of a layer.
const REGISTRY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a registry may interrupt a transfer without progress, and the delay before the next try. How long a
/// registry may be unreachable is limited where it is called.
const TRIES: u32 = 3;

/// The same for a layer that has waited for its turns: registries close connections on which nothing is read.
const TRIES_WITH_PAUSES: u32 = 30;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// After this much progress the count of interruptions starts again.
const PROGRESS_BYTES: u64 = 1 << 20;

/// Why a layer was not transferred.
pub(super) enum TransferError {
    /// The unpacking process has stopped reading.
    Closed,
    /// The registry did not send the layer, or sent something else.
    Failed(Error),
}

/// Sends a layer to the unpacking process in turns with other layers, and resumes where it was when the registry
/// interrupts. A registry that has not responded yet takes no place from others.
pub(super) async fn send_layer(
    pull: &Pull<'_>,
    layer: &Layer,
    mut input: ChildStdin,
    turns: &mut LayerTurns<'_>,
) -> Result<(), TransferError> {
    let (sources, failed, progress) = (pull.sources, TransferError::Failed, &pull.progress);
    let ended = |end: TransferEnd| failed(end_error(pull, &end));
    let (mut sum, mut at, mut failures, mut safe) = (Sha256::new(), 0, 0, 0);
    loop {
        let mut source_response = sources.open_layer(&layer.digest, at).await.map_err(failed)?;
        turns.acquire_place(progress).await.map_err(ended)?;
        // A registry that does not support ranges starts again from the beginning.
        let mut skip = if source_response.response.status() == reqwest::StatusCode::PARTIAL_CONTENT { 0 } else { at };
        let reason = loop {
            // The time until the registry responds is limited elsewhere.
            let (began, paused) = (Instant::now(), turns.paused());
            let received = timeout(REGISTRY_IDLE_TIMEOUT, source_response.response.chunk());
            let piece = match turns.in_turns(progress, received).await.map_err(ended)? {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break "it interrupted the transfer".to_owned(),
                Ok(Err(error)) => break root_cause(&error),
                Err(_) => break "it stopped sending".to_owned(),
            };
            let waited = began.elapsed().saturating_sub(turns.paused() - paused);
            turns.record_transfer(piece.len() as u64, waited).map_err(ended)?;
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= skipped as u64;
            let piece = &piece[skipped..];
            at += piece.len() as u64;
            if at > layer.size {
                return Err(failed(sources.digest_mismatch()));
            }
            sum.update(piece);
            let written = timeout(UNPACKER_IDLE_TIMEOUT, input.write_all(piece));
            match turns.in_turns(progress, written).await.map_err(ended)? {
                Ok(written) => written.map_err(|_| TransferError::Closed)?,
                Err(_) => return Err(failed(pull.unpack_timeout_error())),
            }
            progress.add_bytes(piece.len() as u64);
        };
        if at == layer.size {
            break;
        }
        turns.release_place();
        if sources.abandon_mirror(&source_response, &reason) {
            continue;
        }
        failures = if at - safe >= PROGRESS_BYTES { 1 } else { failures + 1 };
        safe = at;
        if failures >= if turns.paused().is_zero() { TRIES } else { TRIES_WITH_PAUSES } {
            return Err(failed(sources.interruption_error(&reason)));
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    turns.finish();
    if hex::encode(sum.finalize()) != layer.digest {
        return Err(failed(sources.digest_mismatch()));
    }
    Ok(())
}

fn end_error(pull: &Pull<'_>, end: &TransferEnd) -> Error {
    let (name, registry) = (&pull.sources.name, pull.registry);
    match end {
        TransferEnd::BelowMinimumRate => Error::Permanent(format!(
            "{name} cannot be pulled: the registry {registry} sends less than {} KiB in a second; try again when \
             it is faster",
            MIN_RATE >> 10
        )),
        TransferEnd::GivenUp => Error::Retry(format!(
            "{name} makes room for images of others, because many are pulled; it is pulled again later"
        )),
    }
}
