//! Volumes: rows, lookups and lists.

use tarn_model::ids::VolumeId;
use tarn_model::storage::{Volume, VolumeRemains, VolumeState};
use tarn_model::users::Owner;

use crate::counts::{self, VolumeShare};
use crate::db::{Param, Row, params};
use crate::listing::list_sql;
use crate::{Error, Listing, Result, Tx};

/// Every query of this file reads the same columns, in the order of [`read_volume`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, name, user_id, org_id, size_gb, first_size_gb, to_gb, remains, has_data, deletion_protection, ",
            "state, reason, since_us, created_us, version from volumes ",
            $rest
        )
    };
}

/// Adds a volume. `Taken` when its owner has a live volume of that name.
pub fn insert(tx: &mut Tx<'_>, volume: &Volume) -> Result<()> {
    let sql = "insert into volumes (id, scope, name, user_id, org_id, size_gb, first_size_gb, deletion_protection, state, \
               since_us, created_us, version, to_gb, remains, has_data, reason) \
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
    let Columns { to_gb, remains, has_data, reason } = Columns::from_state(&volume.state);
    tx.run(
        sql,
        &params!(volume: id, owner.scope(), name, owner.user, owner.org, size_gb, first_size_gb, deletion_protection,
            state.name(), since, created, version; to_gb, remains, has_data, reason),
    )?;
    counts::add_volume(tx, volume, &VolumeShare { remains, to_gb })
}

/// Saves the mutable columns. `Conflict` when the row was changed since it was read, `Taken` when the new name is in
/// use.
pub fn save(tx: &mut Tx<'_>, volume: &Volume) -> Result<()> {
    let sql = "update volumes set name = $1, size_gb = $2, deletion_protection = $3, state = $4, since_us = $5, to_gb = $8, \
               remains = $9, has_data = $10, reason = $11, version = version + 1 where id = $6 and version = $7";
    let Columns { to_gb, remains, has_data, reason } = Columns::from_state(&volume.state);
    counts::change_volume(tx, volume, &VolumeShare { remains, to_gb })?;
    tx.execute_guarded(
        sql,
        &params!(volume: name, size_gb, deletion_protection, state.name(), since, id, version; to_gb, remains,
            has_data, reason),
    )
}

/// Returns the volume with this id, of any owner.
pub fn get(tx: &mut Tx<'_>, id: &VolumeId) -> Result<Option<Volume>> {
    tx.row(select!("where id = $1"), &params![id], read_volume)
}

/// Returns the live volume with this name in a scope.
pub fn find(tx: &mut Tx<'_>, scope: &str, name: &str) -> Result<Option<Volume>> {
    let sql = select!("where scope = $1 and name = $2 and state <> 'DESTROYED'");
    tx.row(sql, &params![scope, name], read_volume)
}

/// Returns a page of volumes, newest first.
pub fn list(tx: &mut Tx<'_>, listing: &Listing<'_>) -> Result<Vec<Volume>> {
    let sql = list_sql!(select, listing);
    tx.rows(sql, &listing.params_with_scope(), read_volume)
}

/// Returns the total size of all volumes in gigabytes. A volume that is being resized counts with its new size.
pub fn promised_gb(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select cast(coalesce(sum(coalesce(to_gb, size_gb)), 0) as bigint) from volumes where remains = 1";
    tx.single(sql, &[], |row| row.count())
}

/// Returns a page of the volumes of which something may exist, ordered by id.
pub fn remaining(tx: &mut Tx<'_>, after: Option<&VolumeId>, limit: u32) -> Result<Vec<Volume>> {
    let sql = select!("where remains = 1 and id > $1 order by id limit $2");
    tx.rows(sql, &params![after.map_or("", VolumeId::as_str), limit], read_volume)
}

/// Returns those of the volumes that are not destroyed. Each query covers twenty ids.
pub fn claimed(tx: &mut Tx<'_>, volumes: &[&VolumeId]) -> Result<Vec<Volume>> {
    let sql = select!(
        "where state <> 'DESTROYED' and id in \
         ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)"
    );
    let mut found = Vec::new();
    for some in volumes.chunks(20) {
        let ids: [Param<'_>; 20] =
            std::array::from_fn(|at| some.get(at).map_or(Param::Null, |id| Param::Text(id.as_str())));
        found.extend(tx.rows(sql, &ids, read_volume)?);
    }
    Ok(found)
}

/// The columns of a state besides its name.
struct Columns<'a> {
    to_gb: Option<u64>,
    /// Whether something of the volume may exist on the host, so that it counts against capacity.
    remains: bool,
    /// Whether a failed volume has data and may recover.
    has_data: bool,
    reason: Option<&'a str>,
}

impl<'a> Columns<'a> {
    fn from_state(state: &'a VolumeState) -> Self {
        let plain = Columns { to_gb: None, remains: true, has_data: false, reason: None };
        match state {
            VolumeState::Pending | VolumeState::Creating | VolumeState::Ready | VolumeState::Destroying => plain,
            VolumeState::Resizing { to_gb } => Columns { to_gb: Some(*to_gb), ..plain },
            VolumeState::Destroyed => Columns { remains: false, ..plain },
            VolumeState::Failed { reason, left } => Columns {
                remains: *left != VolumeRemains::Nothing,
                has_data: *left == VolumeRemains::Data,
                reason: Some(reason),
                ..plain
            },
        }
    }
}

fn read_volume(row: &mut Row) -> Result<Volume> {
    let id = row.id()?;
    let name = row.text()?;
    let owner = Owner { user: row.id()?, org: row.maybe_id()? };
    let (size_gb, first_size_gb): (u64, u64) = (row.count()?, row.count()?);
    let (to_gb, remains, has_data) = (row.maybe_integer()?, row.flag()?, row.flag()?);
    let left = match (remains, has_data) {
        (false, _) => VolumeRemains::Nothing,
        (true, false) => VolumeRemains::Parts,
        (true, true) => VolumeRemains::Data,
    };
    let deletion_protection = row.flag()?;
    let (state, reason) = (row.text()?, row.maybe_text()?);
    let state = match state.as_str() {
        "PENDING" => VolumeState::Pending,
        "CREATING" => VolumeState::Creating,
        "READY" => VolumeState::Ready,
        "RESIZING" => VolumeState::Resizing { to_gb: to_gb.and_then(|gb| gb.try_into().ok()).unwrap_or(size_gb) },
        "DESTROYING" => VolumeState::Destroying,
        "DESTROYED" => VolumeState::Destroyed,
        "FAILED" => VolumeState::Failed { reason: reason.unwrap_or_default(), left },
        other => return Err(Error::Corrupt(format!("there is no storage state {other}"))),
    };
    let (since, created, version) = (row.time()?, row.time()?, row.integer()?);
    Ok(Volume { id, name, owner, size_gb, first_size_gb, deletion_protection, state, since, created, version })
}
