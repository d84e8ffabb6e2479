//! What can be wrong with a volume. A fault is seen, never mended here: the bytes of a volume that has one stay as they are.

use std::path::Path;

use tarn_model::ids::VolumeId;

use crate::Error;
use crate::local::host::files;
use crate::local::local_host::{LocalHost, blocking};
use crate::local::volumes::{create, pool};

/// The file beside a volume's own that says that its filesystem is damaged.
pub(super) const FILE: &str = "fault";

/// What is wrong with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::local::volumes) enum Fault {
    /// Its file is not there.
    Missing,
    /// What is in its file is not its filesystem.
    Foreign,
    /// Its file ends before its filesystem does.
    Short,
    /// The kernel found its filesystem damaged.
    Damaged,
    /// Its disk does not give back what was written.
    Unreadable,
    /// Another file lies in the place of the one that is mounted.
    Replaced,
    /// The kernel gave it up while it was mounted, perhaps because its disk failed.
    GivenUp,
}

impl Fault {
    /// What its owner is told.
    pub(super) fn describe(self, id: &VolumeId) -> String {
        let back = format!("ask the operator to bring the file of {id} back from a copy, or destroy it");
        match self {
            Fault::Missing => format!("its file is missing; {back}"),
            Fault::Foreign => format!("its file does not hold its filesystem any more; {back}"),
            Fault::Short => format!("its file is shorter than its filesystem; {back}"),
            Fault::Damaged => format!(
                "its filesystem is damaged; ask the operator to repair it (xfs_repair on the file of {id}), or destroy it"
            ),
            Fault::Unreadable => {
                "its disk does not read; ask the operator to look at the disk of the volumes, or destroy it".to_owned()
            }
            Fault::Replaced => {
                "its file was replaced while the former one was in use; detach it everywhere, and the new one is used"
                    .to_owned()
            }
            Fault::GivenUp => {
                "its filesystem failed while it was in use; detach it everywhere, ask the operator to look \
                               at the disk of the volumes, or destroy it"
                    .to_owned()
            }
        }
    }

    /// The refusal of a verb that needs the volume to be sound.
    pub(in crate::local::volumes) fn refusal(self, id: &VolumeId) -> Error {
        tracing::warn!(%id, fault = ?self, "a volume cannot be used");
        Error::Permanent(format!("volume {id} cannot be used: {}", self.describe(id)))
    }
}

/// Mounting a filesystem writes a little. With less than this on the disk of the pool, a failure has a simple cause.
const MIN_FREE_BYTES: u64 = 16 << 20;

/// The refusal for its owner when the kernel could not read or write a volume. On a full disk that says nothing of the volume;
/// on any other it is most often how the kernel speaks of damage, and then nobody touches the volume until somebody has looked.
pub(in crate::local) async fn report_unreadable(host: &LocalHost, id: &VolumeId, reason: &str) -> Error {
    match pool::free_bytes(&host.paths.pool) {
        Ok(free) if free < MIN_FREE_BYTES => {
            tracing::warn!(%id, reason, "a volume could not be used: the disk of the volumes is full");
            create::disk_full_error("the volume could not be used")
        }
        _ => report_damage(host, id, reason).await,
    }
}

/// Keeps for good that the kernel found the filesystem of a volume damaged, and gives the refusal for its owner. Nothing
/// touches its data until an operator has mended it and removed what was written down here.
pub(in crate::local) async fn report_damage(host: &LocalHost, id: &VolumeId, reason: &str) -> Error {
    let (path, text) = (host.paths.volume_directory(id).join(FILE), repair_advice(&host.paths.volume_file(id), reason));
    tracing::warn!(%id, reason, file = %path.display(), "a volume is damaged: this file says what to do");
    let what = "the fault of a volume could not be written down";
    if let Err(error) = blocking(what, move || files::write_durably(&path, text.as_bytes(), 0o600)).await {
        tracing::warn!(%id, %error, "the fault will be seen again when the volume is mounted next");
    }
    Fault::Damaged.refusal(id)
}

fn repair_advice(file: &Path, reason: &str) -> String {
    let file = file.display();
    format!(
        "The kernel would not mount this volume: {reason}\n\
         While this file is here nothing touches the volume. To mend it:\n\
         1. Detach it everywhere: losetup --list must not show it any more.\n\
         2. Make a copy: cp --sparse=always {file} <elsewhere>\n\
         3. Repair it: xfs_repair {file}\n\
         4. Remove this file.\n"
    )
}
