//! The bytes of a layer on their way from the registry to whoever unpacks it, through their digest.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::time::{Instant, timeout};

use super::layer::{Layer, Pull, SILENCE};
use super::unpack_permits::{LEAST_RATE, TooSlow, Turn};
use crate::Error;
use crate::local::images::registry::connection::reason;

/// How long a registry may be silent in the middle of a layer.
const STALL: Duration = Duration::from_secs(30);

/// So often a registry that answers may break off without having sent anything to speak of, and how long to wait then. How long
/// one may be away that does not answer is not counted here, but where it is asked.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// Whoever has sent so much since the last trouble may have trouble again.
const WORTH: u64 = 1 << 20;

/// Why a layer was not sent.
pub(super) enum Sending {
    /// Nobody reads any more.
    Closed,
    /// The registry did not give it, or gave something else.
    Failed(Error),
}

/// Sends a layer to whoever unpacks it, and goes on where it was when the registry breaks off.
pub(in crate::local::images) async fn send(
    pull: &Pull<'_>,
    layer: &Layer,
    mut input: ChildStdin,
    turn: &mut Turn<'_>,
) -> Result<(), Sending> {
    let (sources, failed) = (pull.sources, Sending::Failed);
    let (mut sum, mut at, mut troubles, mut safe) = (Sha256::new(), 0, 0, 0);
    loop {
        let mut given = sources.layer(&layer.digest, at).await.map_err(failed)?;
        // What was waited for until somebody answered has bounds of its own.
        let mut began = Instant::now();
        // One that cannot begin in the middle begins anew.
        let mut skip = if given.answer.status() == reqwest::StatusCode::PARTIAL_CONTENT { 0 } else { at };
        let trouble = loop {
            let piece = match timeout(STALL, given.answer.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break "it broke off".to_owned(),
                Ok(Err(error)) => break reason(&error),
                Err(_) => break "it fell silent".to_owned(),
            };
            turn.came(piece.len() as u64, began.elapsed()).map_err(|slow| failed(too_slow(pull, &slow)))?;
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
            skip -= skipped as u64;
            let piece = &piece[skipped..];
            at += piece.len() as u64;
            if at > layer.size {
                return Err(failed(sources.does_not_match()));
            }
            sum.update(piece);
            match timeout(SILENCE, input.write_all(piece)).await {
                Ok(written) => written.map_err(|_| Sending::Closed)?,
                Err(_) => return Err(failed(pull.takes_too_long())),
            }
            pull.progress.add(piece.len() as u64);
            began = Instant::now();
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
            return Err(failed(sources.broke_off(&trouble, troubles)));
        }
        tokio::time::sleep(PAUSE).await;
    }
    let digest: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != layer.digest {
        return Err(failed(sources.does_not_match()));
    }
    Ok(())
}

fn too_slow(pull: &Pull<'_>, slow: &TooSlow) -> Error {
    let (name, registry) = (&pull.sources.name, pull.registry);
    match slow {
        TooSlow::Silent => Error::Permanent(format!(
            "{name} cannot be pulled: the registry {registry} sends less than {} KiB in a second; try again when it is faster",
            LEAST_RATE >> 10
        )),
        TooSlow::Crowded => Error::Retry(format!(
            "{name} comes slowly from {registry}, and too many other images do; it is pulled again later"
        )),
    }
}
