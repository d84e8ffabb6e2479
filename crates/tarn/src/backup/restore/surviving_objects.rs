//! A directory of objects that survived the former installation, and that the new one shall use. Until the new one has
//! its data directory, nothing is removed from it, and the former installation can use it.

use std::collections::HashSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tarn_model::ids::FileId;
use tarn_store::backup::NamedFile;

use crate::backup::parts::contents::{content_faults, restore_contents};
use crate::backup::place::content_key;
use crate::backup::place::medium::Medium;
use crate::backup::place::sums::md5_of;
use crate::data::ownership_mark;
use crate::failure::{Failure, Result};

/// A directory that no engine uses while this value lives.
pub(super) struct SurvivingObjects {
    pub(super) directory: PathBuf,
    /// The mark of the former installation.
    former: String,
    /// Whether everything in it is read and compared with its checksum.
    verify: bool,
    _lock: File,
}

impl SurvivingObjects {
    /// Opens a directory, which must be the one that the configuration names.
    pub(super) fn open(directory: &Path, configured: Option<&Path>, verify: bool) -> Result<SurvivingObjects> {
        let shown = directory.display();
        let failed = |e: io::Error| Failure::with_cause(format!("cannot use {shown}"), e);
        let directory = directory.canonicalize().map_err(failed)?;
        if configured.and_then(|configured| configured.canonicalize().ok()).as_ref() != Some(&directory) {
            return Err(Failure(format!(
                "--take-over-objects needs a configuration that names {shown} as object_storage.directory; it cannot be in \
                 the new data directory"
            )));
        }
        let Some(former) = ownership_mark::read_mark(&directory)? else {
            return Err(Failure(format!("{shown} has no objects of an installation: is its disk mounted?")));
        };
        let lock = File::open(&directory).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(SurvivingObjects { directory, former, verify, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                Err(Failure(format!("{shown} is used by an engine; stop it for good first")))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Refuses objects of another installation than the one of the backup, and stores in the new data directory that it
    /// takes these over.
    pub(super) fn prepare(&self, data: &Path, backup_mark: Option<&str>) -> Result<()> {
        if backup_mark != Some(self.former.as_str()) {
            return Err(Failure(format!(
                "{} has the objects of another installation than the one of the backup",
                self.directory.display()
            )));
        }
        ownership_mark::remember_take_over(data, &self.former)
    }

    /// Brings what is missing or damaged from the backup, if that has it.
    pub(super) async fn complete(&self, medium: &dyn Medium, list: &[NamedFile]) -> io::Result<()> {
        for file in list {
            let one = std::slice::from_ref(file);
            if self.fault(file)?.is_none() || !content_faults(medium, one).await?.is_empty() {
                continue;
            }
            let path = self.path(file);
            fs::remove_file(path).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
            for fault in restore_contents(medium, one, &self.directory, false).await? {
                eprintln!("tarn: {fault}");
            }
        }
        Ok(())
    }

    /// Returns what is wrong with the content of a file, if anything is.
    pub(super) fn fault(&self, file: &NamedFile) -> io::Result<Option<&'static str>> {
        let path = self.path(file);
        match path.metadata() {
            Ok(found) if found.len() != file.bytes => Ok(Some("it has another size")),
            Ok(_) if self.verify && file.md5.len() == 32 && md5_of(&path)?.1 != file.md5 => {
                Ok(Some("its content is not what was stored"))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some("it is missing")),
            Err(error) => Err(error),
        }
    }

    /// Counts the files that no row names. The first engine of the new installation removes them.
    pub(super) fn count_unnamed(&self, named: &[NamedFile]) -> io::Result<u64> {
        let named: HashSet<&FileId> = named.iter().map(|file| &file.file).collect();
        let mut count = 0;
        for shard in fs::read_dir(&self.directory)? {
            let shard = shard?;
            if !shard.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(shard.path())? {
                let file = file?.file_name().to_string_lossy().parse::<FileId>();
                count += u64::from(file.is_ok_and(|file| !named.contains(&file)));
            }
        }
        Ok(count)
    }

    /// Makes the objects those of the new installation, whose data directory has its final name now.
    pub(super) fn publish(&self, data: &Path, mark: &str) -> Result<()> {
        ownership_mark::take_over(&self.directory, data, mark)
    }

    fn path(&self, file: &NamedFile) -> PathBuf {
        self.directory.join(content_key(&file.file))
    }
}
