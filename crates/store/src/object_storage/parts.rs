//! The parts of contents and the files they are in. A file that no part names is not needed.

use tarn_model::ids::{ContentId, FileId};
use tarn_model::objects::Part;

use crate::db::Row;
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
    tx.execute(
        sql,
        &[
            part.content.as_str().into(),
            part.number.into(),
            part.file.as_str().into(),
            part.size.into(),
            (&part.etag).into(),
            part.checksum.as_deref().into(),
            part.modified.into(),
        ],
    )?;
    Ok(())
}

/// A part by its number.
pub fn get(tx: &mut Tx<'_>, content: &ContentId, number: u32) -> Result<Option<Part>> {
    let sql = select!("where content_id = $1 and number = $2");
    tx.query_one(sql, &[content.as_str().into(), number.into()])?.map(read).transpose()
}

/// The parts after this number, in order.
pub fn list(tx: &mut Tx<'_>, content: &ContentId, after: u32, limit: u32) -> Result<Vec<Part>> {
    let sql = select!("where content_id = $1 and number > $2 order by number limit $3");
    let rows = tx.query(sql, &[content.as_str().into(), after.into(), limit.into()])?;
    rows.into_iter().map(read).collect()
}

/// Forgets a part.
pub fn remove(tx: &mut Tx<'_>, content: &ContentId, number: u32) -> Result<()> {
    let sql = "delete from parts where content_id = $1 and number = $2";
    tx.execute(sql, &[content.as_str().into(), number.into()])?;
    Ok(())
}

/// Forgets the parts of a content but those with these numbers.
pub fn remove_others(tx: &mut Tx<'_>, content: &ContentId, kept: &[u32]) -> Result<()> {
    // One character for every number, so that it is one statement for ten thousand parts, too.
    let mut marks = vec![b'-'; kept.iter().max().map_or(0, |last| *last as usize)];
    for number in kept.iter().filter(|number| **number > 0) {
        marks[*number as usize - 1] = b'x';
    }
    let marks = String::from_utf8_lossy(&marks);
    let sql = "delete from parts where content_id = $1 and substr(cast($2 as text), cast(number as integer), 1) <> 'x'";
    tx.execute(sql, &[content.as_str().into(), (&*marks).into()])?;
    Ok(())
}

/// Forgets all parts of a content.
pub fn remove_all(tx: &mut Tx<'_>, content: &ContentId) -> Result<()> {
    tx.execute("delete from parts where content_id = $1", &[content.as_str().into()])?;
    Ok(())
}

/// Whether a file belongs to a part.
pub fn has_file(tx: &mut Tx<'_>, file: &FileId) -> Result<bool> {
    Ok(tx.query_one("select 1 from parts where file_id = $1", &[file.as_str().into()])?.is_some())
}

/// Whether there are any files at all.
pub fn any(tx: &mut Tx<'_>) -> Result<bool> {
    Ok(tx.query_one("select 1 from parts limit 1", &[])?.is_some())
}

fn read(mut row: Row) -> Result<Part> {
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
