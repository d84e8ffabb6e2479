//! The ownership mark of the objects directory: a file that names the installation. The sweep removes files that the
//! database does not know, so a directory of another installation must never be opened.

use std::io::ErrorKind;
use std::path::Path;

use tarn_model::Ids;
use tarn_store::{Store, installation, parts};

use crate::data;
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The name under which the database keeps the mark of its directory.
pub(crate) const MARK_NAME: &str = "objects_directory";

/// The file with the mark. No data file can have this name.
const MARK_FILE: &str = "installation";

/// Ensures that the directory belongs to this installation. An empty directory is marked; a directory of another
/// installation is refused, and so is a directory without a mark when this installation already has objects.
pub(crate) async fn ensure_owned(directory: &Path, store: &Store, ids: &dyn Ids) -> StartResult<()> {
    let fresh = format!("{:016x}{:016x}", ids.bits(), ids.bits());
    let known = store.write(move |tx| -> tarn_store::Result<(String, bool)> {
        Ok((installation::remember_once(tx, MARK_NAME, &fresh)?, parts::any(tx)?))
    });
    let (mark, has_files) =
        known.await.map_err(|e| StartFailure::with_cause("cannot check the objects directory", e))?;
    let shown = directory.display();
    let place = directory.join(MARK_FILE);
    let ensured = match std::fs::read_to_string(&place) {
        Ok(found) if found.trim() == mark => Ok(()),
        Ok(_) => Err(Failure(format!(
            "{shown} holds the objects of another installation; set another directory in [object_storage]"
        ))),
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(Failure::with_cause(format!("cannot read {}", place.display()), e))
        }
        Err(_) if has_files => Err(Failure(format!(
            "the objects of this database are not in {shown}; restore them, or set their directory in [object_storage]"
        ))),
        Err(_) if !is_empty_directory(directory)? => Err(Failure(format!(
            "{shown} is not empty and has no ownership mark; set an empty directory in [object_storage]"
        ))),
        Err(_) => {
            data::create_directory(directory)?;
            data::publish_secret(&data::prepare_secret(&place, &mark)?, &place)
        }
    };
    Ok(ensured?)
}

/// Reads the mark of a directory; `None` if it has none.
pub(crate) fn read_mark(directory: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(directory.join(MARK_FILE)) {
        Ok(mark) => Ok(Some(mark.trim().to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::with_cause(format!("cannot read the mark of {}", directory.display()), e)),
    }
}

/// Marks a new directory of objects. Returns the mark, which the database has to keep under [`MARK_NAME`].
pub(crate) fn write_new_mark(directory: &Path, ids: &dyn Ids) -> Result<String> {
    let mark = format!("{:016x}{:016x}", ids.bits(), ids.bits());
    let place = directory.join(MARK_FILE);
    data::publish_secret(&data::prepare_secret(&place, &mark)?, &place)?;
    Ok(mark)
}

/// Whether the directory is empty, apart from a temporary mark of an earlier start.
fn is_empty_directory(directory: &Path) -> Result<bool> {
    let failed = |e| Failure::with_cause(format!("cannot read {}", directory.display()), e);
    let mut entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        entries => entries.map_err(failed)?,
    };
    let is_ours = |name: &str| name.starts_with(&format!("{MARK_FILE}.")) || name == "lost+found";
    entries.try_fold(true, |empty, entry| Ok(empty && is_ours(&entry.map_err(failed)?.file_name().to_string_lossy())))
}
