//! Short errands besides starting an instance: what the helper process has to do in the mount namespace of an instance, and
//! growing, for which a filesystem must be mounted though nobody else may see it.

use std::io;
use std::time::Duration;

use tarn_model::ids::VolumeId;

use super::dialogue::Helper;
use super::helper::order::{Mount, Order, Refused, Report, Unmount, Volume, Why};
use super::local_host::{LocalHost, failed};
use super::processes::Process;
use super::volumes::Device;
use super::{filesystems, volumes};
use crate::Error;

/// How long an errand may take. A filesystem that was not left in good order is put in order when it is mounted, and one
/// that is left writes down what is not yet on disk: both take seconds when it is large.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

const NOT_MOUNTED: &str = "the volume could not be mounted";
const NOT_UNMOUNTED: &str = "the volume could not be unmounted";
const NOT_GROWN: &str = "the volume could not be grown";

/// Mounts volumes in the instance that has this first process; those that are mounted there already stay. The devices must be
/// open until this returns.
pub(super) async fn mount(
    host: &LocalHost,
    process: &Process,
    id_base: u32,
    volumes: &[(VolumeId, Device)],
) -> Result<(), Error> {
    let volume = |(id, device): &(VolumeId, Device)| Volume {
        id: id.clone(),
        device: device.path.clone(),
        number: device.number,
        file: device.file,
    };
    let volumes = volumes.iter().map(volume).collect();
    let order = Order::Mount(Mount { process: process.clone(), id_base, volumes });
    match run(host, &order).await.map_err(|error| failed(NOT_MOUNTED, &error))? {
        None => Ok(()),
        Some(refused) => Err(explain(host, refused).await),
    }
}

/// Unmounts a volume from the instance that has this first process. Says whether it is unmounted now: it is not while
/// processes use it.
pub(super) async fn unmount(host: &LocalHost, process: &Process, id: &VolumeId, number: u64) -> Result<bool, Error> {
    let order = Order::Unmount(Unmount { process: process.clone(), id: id.clone(), number });
    match run(host, &order).await.map_err(|error| failed(NOT_UNMOUNTED, &error))? {
        None => Ok(true),
        Some(Refused { why: Why::Busy, .. }) => Ok(false),
        Some(refused) => Err(explain(host, refused).await),
    }
}

/// Grows the filesystem of a volume to the size of its device, wherever it is mounted.
pub(super) async fn grow(host: &LocalHost, device: &Device) -> Result<(), Error> {
    let path = device.path.clone();
    let grown = tokio::task::spawn_blocking(move || filesystems::grow(&path)).await;
    let error = match grown {
        Ok(Ok(bytes)) => {
            tracing::info!(bytes, "the filesystem of a volume has grown");
            return Ok(());
        }
        Ok(Err(error)) => error,
        Err(stopped) if stopped.is_panic() => std::panic::resume_unwind(stopped.into_panic()),
        Err(_) => return Err(Error::Retry("the engine is stopping".into())),
    };
    let known = || volumes::opened(host).ok()?.remove(&device.number);
    if error.kind() == io::ErrorKind::StorageFull {
        tracing::warn!(%error, "{NOT_GROWN}");
        return Err(Error::Retry(format!("{NOT_GROWN}: there is no room left in it to note that it is larger")));
    }
    match known() {
        Some(id) if filesystems::is_damage(&error) => Err(volumes::damaged(host, &id, &error.to_string()).await),
        Some(id) if filesystems::is_failure(&error) => Err(volumes::unreadable(host, &id, &error.to_string()).await),
        _ => Err(failed(NOT_GROWN, &error)),
    }
}

/// Has one order carried out; `Some` when a volume was refused.
async fn run(host: &LocalHost, order: &Order) -> io::Result<Option<Refused>> {
    let mut helper = Helper::spawn(host)?;
    let talk = async {
        helper.order(order).await?;
        match helper.hear().await? {
            Report::Done => Ok(None),
            Report::Refused(refused) => Ok(Some(refused)),
            _ => Err(io::Error::other("the helper answered another question")),
        }
    };
    let done = tokio::time::timeout(PATIENCE, talk).await;
    let done = done.unwrap_or_else(|_| Err(io::Error::other("the helper took too long")));
    helper.end(done.is_ok()).await;
    done
}

/// What the owner is told.
async fn explain(host: &LocalHost, refused: Refused) -> Error {
    let volume = &refused.volume;
    match refused.why {
        Why::Damaged { reason } => volumes::damaged(host, volume, &reason).await,
        Why::Unreadable { reason } => volumes::unreadable(host, volume, &reason).await,
        Why::Taken { what } => Error::Permanent(format!("{volume} cannot be mounted in the instance: {what}")),
        Why::Busy => Error::Permanent(format!("{volume} is in use in the instance")),
        Why::Ended => Error::Retry("the instance has ended".into()),
    }
}
