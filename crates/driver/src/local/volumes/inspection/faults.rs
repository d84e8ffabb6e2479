//! The faults of volumes. A fault is reported and never repaired here: the bytes of a faulty volume stay as they are.

use std::path::Path;

use tarn_model::ids::VolumeId;

use crate::Error;
use crate::local::host::files;
use crate::local::local_host::{LocalHost, blocking};
use crate::local::volumes::{create, pool};

/// The file next to a volume's own that marks its filesystem as damaged.
pub(super) const FILE: &str = "fault";

/// What is wrong with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local::volumes) enum Fault {
    Missing,
    /// Its file does not contain its filesystem.
    Foreign,
    /// Its file ends before its filesystem does.
    Short,
    /// The kernel found its filesystem damaged.
    Damaged,
    /// Its disk does not return what was written.
    Unreadable,
    /// Its file was replaced while the former one is mounted.
    Replaced,
    /// The kernel shut it down while it was mounted, perhaps because its disk failed.
    ShutDown,
}

impl Fault {
    /// The description for the owner.
    pub(super) fn describe(self, id: &VolumeId) -> String {
        let restore = format!("ask the operator to restore the file of {id} from a backup, or destroy it");
        match self {
            Fault::Missing => format!("its file is missing; {restore}"),
            Fault::Foreign => format!("its file no longer contains its filesystem; {restore}"),
            Fault::Short => format!("its file is shorter than its filesystem; {restore}"),
            Fault::Damaged => format!(
                "its filesystem is damaged; ask the operator to repair it (xfs_repair on the file of {id}), \
                 or destroy it"
            ),
            Fault::Unreadable => {
                "its disk cannot be read; ask the operator to check the disk of the volumes, or destroy it".to_owned()
            }
            Fault::Replaced => {
                "its file was replaced while the former one was in use; detach it everywhere, and the new one is used"
                    .to_owned()
            }
            Fault::ShutDown => {
                "its filesystem failed while it was in use; detach it everywhere, ask the operator to check \
                the disk of the volumes, or destroy it"
                    .to_owned()
            }
        }
    }

    /// The refusal of an operation that needs a sound volume.
    pub(in crate::local::volumes) fn refusal(self, id: &VolumeId) -> Error {
        tracing::warn!(%id, fault = ?self, "a volume cannot be used");
        Error::Permanent(format!("volume {id} cannot be used: {}", self.describe(id)))
    }
}

/// Mounting a filesystem writes a little. With less than this free on the disk of the pool, a failure has a simple
/// cause.
const MIN_FREE_BYTES: u64 = 16 << 20;

/// Reports that the kernel could not read or write a volume, and returns the refusal for its owner. On a full disk that
/// says nothing about the volume. Otherwise it most often means damage, and the volume is not touched until an operator
/// has looked at it.
pub(in crate::local) async fn report_unreadable(host: &LocalHost, id: &VolumeId, reason: &str) -> Error {
    match pool::free_bytes(&host.paths.pool) {
        Ok(free) if free < MIN_FREE_BYTES => {
            tracing::warn!(%id, reason, "a volume could not be used: the disk of the volumes is full");
            create::disk_full_error("the volume could not be used")
        }
        _ => report_damage(host, id, reason).await,
    }
}

/// Records durably that the kernel found the filesystem of a volume damaged, and returns the refusal for its owner. The
/// data is not touched until an operator has repaired it and removed the record.
pub(in crate::local) async fn report_damage(host: &LocalHost, id: &VolumeId, reason: &str) -> Error {
    let (path, text) = (host.paths.volume_directory(id).join(FILE), repair_advice(&host.paths.volume_file(id), reason));
    tracing::warn!(%id, reason, file = %path.display(), "a volume is damaged: this file says what to do");
    let what = "the fault of the volume could not be recorded";
    if let Err(error) = blocking(what, move || files::write_durably(&path, text.as_bytes(), 0o600)).await {
        tracing::warn!(%id, %error, "the fault will be detected again at the next mount");
    }
    Fault::Damaged.refusal(id)
}

fn repair_advice(file: &Path, reason: &str) -> String {
    let file = file.display();
    format!(
        "The kernel refused to mount this volume: {reason}\n\
         While this file exists, the volume is not used. To repair it:\n\
         1. Detach it everywhere: losetup --list must no longer show it.\n\
         2. Make a copy: cp --sparse=always {file} <elsewhere>\n\
         3. Repair it: xfs_repair {file}\n\
         4. Remove this file.\n"
    )
}
