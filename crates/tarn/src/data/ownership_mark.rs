//! The ownership mark of the objects directory: a file that names the installation. The sweep removes files that the
//! database does not know, so a directory of another installation must never be opened.

use std::io::ErrorKind;
use std::path::Path;

use tarn_base::files;
use tarn_model::Ids;
use tarn_store::{Store, installation, parts};

use crate::data;
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// The name under which the database keeps the mark of its directory.
pub(crate) const MARK_NAME: &str = "objects_directory";

/// The file with the mark. No data file can have this name.
pub(crate) const MARK_FILE: &str = "installation";

/// The file in a restored data directory with the mark of the objects of the former installation, which shall be those
/// of this one and still have that mark.
const TAKE_OVER_FILE: &str = "objects.take-over";

/// Ensures that the directory belongs to the installation of a data directory. An empty directory is marked. One of
/// another installation is refused, unless a restore takes it over, and so is one without a mark when this installation
/// already has objects.
pub(crate) async fn ensure_owned(directory: &Path, data: &Path, store: &Store, ids: &dyn Ids) -> StartResult<()> {
    let fresh = new_mark(ids);
    let known = store.write(move |tx| -> tarn_store::Result<(String, bool)> {
        Ok((installation::remember_once(tx, MARK_NAME, &fresh)?, parts::any(tx)?))
    });
    let (mark, has_files) =
        known.await.map_err(|e| StartFailure::with_cause("cannot check the objects directory", e))?;
    let shown = directory.display();
    let ensured = match read_mark(directory)? {
        Some(found) if found == mark => Ok(()),
        Some(found) if taken_over(data)?.as_deref() == Some(&found) => take_over(directory, data, &mark),
        Some(_) => Err(Failure(format!(
            "{shown} holds the objects of another installation; set another directory in [object_storage]"
        ))),
        None if has_files => Err(Failure(format!(
            "the objects of this database are not in {shown}; restore them, or set their directory in [object_storage]"
        ))),
        None if !is_empty_directory(directory)? => Err(Failure(format!(
            "{shown} is not empty and has no ownership mark; set an empty directory in [object_storage]"
        ))),
        None => {
            data::create_directory(directory)?;
            write_mark(directory, &mark)
        }
    };
    Ok(ensured?)
}

/// Reads the mark of a directory; `None` if it has none.
pub(crate) fn read_mark(directory: &Path) -> Result<Option<String>> {
    read_text(&directory.join(MARK_FILE))
}

/// Returns a mark for a directory of objects, which the database has to keep under [`MARK_NAME`].
pub(crate) fn new_mark(ids: &dyn Ids) -> String {
    format!("{:016x}{:016x}", ids.bits(), ids.bits())
}

/// Marks a directory of objects.
pub(crate) fn write_mark(directory: &Path, mark: &str) -> Result<()> {
    let place = directory.join(MARK_FILE);
    data::publish_secret(&data::prepare_secret(&place, mark)?, &place)
}

/// Stores that a restored data directory takes over the objects with this mark.
pub(crate) fn remember_take_over(data: &Path, former: &str) -> Result<()> {
    let place = data.join(TAKE_OVER_FILE);
    data::publish_secret(&data::prepare_secret(&place, former)?, &place)
}

/// Marks the objects that a restored data directory takes over as its own, so that the former installation is refused.
pub(crate) fn take_over(directory: &Path, data: &Path, mark: &str) -> Result<()> {
    write_mark(directory, mark)?;
    let place = data.join(TAKE_OVER_FILE);
    let removed = std::fs::remove_file(&place).and_then(|()| files::sync_parent(&place));
    removed.map_err(|e| Failure::with_cause(format!("cannot remove {}", place.display()), e))
}

/// The mark of the objects that a data directory takes over.
fn taken_over(data: &Path) -> Result<Option<String>> {
    read_text(&data.join(TAKE_OVER_FILE))
}

fn read_text(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::with_cause(format!("cannot read {}", path.display()), e)),
    }
}

/// Whether a file of this name is a mark before it has its name: what a process leaves that is killed meanwhile.
pub(crate) fn is_temporary_mark(name: &str) -> bool {
    name.strip_prefix(MARK_FILE).is_some_and(|rest| rest.starts_with('.'))
}

/// Whether the directory is empty, apart from a temporary mark of an earlier start.
fn is_empty_directory(directory: &Path) -> Result<bool> {
    let failed = |e| Failure::with_cause(format!("cannot read {}", directory.display()), e);
    let mut entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        entries => entries.map_err(failed)?,
    };
    let is_ours = |name: &str| is_temporary_mark(name) || name == "lost+found";
    entries.try_fold(true, |empty, entry| Ok(empty && is_ours(&entry.map_err(failed)?.file_name().to_string_lossy())))
}
