//! The parts of contents, and the data files that hold them. A file that no part refers to is an orphan.

use tarn_model::ids::{ContentId, FileId};
use tarn_model::objects::Part;

use crate::db::{Row, params};
use crate::{Result, Tx};

macro_rules! select {
    ($rest:literal) => {
        concat!("select content_id, number, file_id, size, etag, checksum, modified_us from parts ", $rest)
    };
}

/// Adds a part.
pub fn insert(tx: &mut Tx<'_>, part: &Part) -> Result<()> {
    let sql = "insert into parts (content_id, number, file_id, size, etag, checksum, modified_us) \
               values ($1, $2, $3, $4, $5, $6, $7)";
    tx.run(sql, &params!(part: content, number, file, size, etag, checksum, modified))
}

/// Returns a part by its number.
pub fn get(tx: &mut Tx<'_>, content: &ContentId, number: u32) -> Result<Option<Part>> {
    let sql = select!("where content_id = $1 and number = $2");
    tx.row(sql, &params![content, number], read_part)
}

/// Returns the parts after this number, in order.
pub fn list(tx: &mut Tx<'_>, content: &ContentId, after: u32, limit: u32) -> Result<Vec<Part>> {
    let sql = select!("where content_id = $1 and number > $2 order by number limit $3");
    tx.rows(sql, &params![content, after, limit], read_part)
}

/// Removes a part.
pub fn remove(tx: &mut Tx<'_>, content: &ContentId, number: u32) -> Result<()> {
    let sql = "delete from parts where content_id = $1 and number = $2";
    tx.run(sql, &params![content, number])
}

/// Removes the parts of a content except those with these numbers.
pub fn remove_others(tx: &mut Tx<'_>, content: &ContentId, kept: &[u32]) -> Result<()> {
    // One character per part number, so that one statement serves ten thousand parts.
    let mut marks = vec![b'-'; kept.iter().max().map_or(0, |last| *last as usize)];
    for number in kept.iter().filter(|number| **number > 0) {
        marks[*number as usize - 1] = b'x';
    }
    let marks = String::from_utf8_lossy(&marks);
    let sql = "delete from parts where content_id = $1 and substr(cast($2 as text), cast(number as integer), 1) <> 'x'";
    tx.run(sql, &params![content, &*marks])
}

/// Removes all parts of a content.
pub fn remove_all(tx: &mut Tx<'_>, content: &ContentId) -> Result<()> {
    tx.run("delete from parts where content_id = $1", &params![content])
}

/// Returns whether a part refers to a file.
pub fn has_file(tx: &mut Tx<'_>, file: &FileId) -> Result<bool> {
    tx.has_row("select 1 from parts where file_id = $1", &params![file])
}

/// Returns whether there are any parts, and so any files.
pub fn any(tx: &mut Tx<'_>) -> Result<bool> {
    tx.has_row("select 1 from parts limit 1", &[])
}

fn read_part(row: &mut Row) -> Result<Part> {
    Ok(Part {
        content: row.id()?,
        number: row.count()?,
        file: row.id()?,
        size: row.count()?,
        etag: row.text()?,
        checksum: row.maybe_text()?,
        modified: row.time()?,
    })
}
