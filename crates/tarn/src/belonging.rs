//! Whose a directory of objects is: a mark in it names the installation. The sweep removes files that this database does not
//! know, so a directory that belongs to another one must never be opened.

use std::io::ErrorKind;
use std::path::Path;

use tarn_model::Ids;
use tarn_store::{Store, installation, parts};

use crate::data;
use crate::failure::{Failure, Result};

/// Under this name the database keeps the mark of its directory.
const REMEMBERED: &str = "objects_directory";

/// The file with the mark. No data file can be called so.
const MARK: &str = "installation";

/// Makes the directory this installation's if it is nobody's; refused when it is another's, and when the objects of this
/// installation must be somewhere else.
pub(crate) async fn ensure(directory: &Path, store: &Store, ids: &dyn Ids) -> Result<()> {
    let fresh = format!("{:016x}{:016x}", ids.bits(), ids.bits());
    let known = store.write(move |tx| -> tarn_store::Result<(String, bool)> {
        Ok((installation::remember_once(tx, REMEMBERED, &fresh)?, parts::any(tx)?))
    });
    let (mark, has_files) = known.await.map_err(|e| Failure::doing("cannot check the directory of objects", e))?;
    let shown = directory.display();
    let place = directory.join(MARK);
    match std::fs::read_to_string(&place) {
        Ok(found) if found.trim() == mark => Ok(()),
        Ok(_) => Err(Failure(format!(
            "{shown} holds the objects of another installation: name another directory in [object_storage]"
        ))),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Failure::doing(format!("cannot read {}", place.display()), e)),
        Err(_) if has_files => Err(Failure(format!(
            "the objects of this database are not in {shown}: bring them back, or name their directory in [object_storage]"
        ))),
        Err(_) if !is_empty(directory)? => Err(Failure(format!(
            "{shown} is not empty and does not say whose it is: name an empty directory in [object_storage]"
        ))),
        Err(_) => {
            data::make(directory)?;
            data::publish(&data::prepare(&place, &mark)?, &place)
        }
    }
}

/// Whether nothing is in it but what another start left of a mark.
fn is_empty(directory: &Path) -> Result<bool> {
    let failed = |e| Failure::doing(format!("cannot read {}", directory.display()), e);
    let mut entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
        entries => entries.map_err(failed)?,
    };
    let is_ours = |name: &str| name.starts_with(&format!("{MARK}.")) || name == "lost+found";
    entries.try_fold(true, |empty, entry| Ok(empty && is_ours(&entry.map_err(failed)?.file_name().to_string_lossy())))
}
