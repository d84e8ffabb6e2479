//! Volumes: rows, lookups and lists.

use tarn_model::ids::VolumeId;
use tarn_model::storage::{Volume, VolumeState};
use tarn_model::users::Owner;

use crate::db::Row;
use crate::listing::list_sql;
use crate::{Error, Listing, Result, Tx};

/// Every query of this file reads the same columns, in the order of [`read`].
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "select id, name, user_id, org_id, size_gb, first_size_gb, to_gb, remains, deletion_protection, ",
            "state, reason, since_us, created_us, version from volumes ",
            $rest
        )
    };
}

/// Adds a new volume; `Taken` when its owner has a live one of that name.
pub fn insert(tx: &mut Tx<'_>, volume: &Volume) -> Result<()> {
    let sql = "insert into volumes (id, scope, name, user_id, org_id, size_gb, first_size_gb, to_gb, remains, deletion_protection, state, \
               reason, since_us, created_us, version) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)";
    let (to_gb, remains, reason) = state_columns(&volume.state);
    tx.execute(
        sql,
        &[
            volume.id.as_str().into(),
            volume.owner.scope().into(),
            (&volume.name).into(),
            volume.owner.user.as_str().into(),
            volume.owner.org.as_ref().map(|org| org.as_str()).into(),
            volume.size_gb.into(),
            volume.first_size_gb.into(),
            to_gb.into(),
            remains.into(),
            volume.deletion_protection.into(),
            volume.state.name().into(),
            reason.into(),
            volume.since.into(),
            volume.created.into(),
            volume.version.into(),
        ],
    )?;
    Ok(())
}

/// Saves what can change; `Conflict` when it was changed since it was read, `Taken` when the new name is in use.
pub fn save(tx: &mut Tx<'_>, volume: &Volume) -> Result<()> {
    let sql = "update volumes set name = $1, size_gb = $2, to_gb = $3, remains = $4, deletion_protection = $5, state = $6, reason = $7, \
               since_us = $8, version = version + 1 where id = $9 and version = $10";
    let (to_gb, remains, reason) = state_columns(&volume.state);
    tx.execute_guarded(
        sql,
        &[
            (&volume.name).into(),
            volume.size_gb.into(),
            to_gb.into(),
            remains.into(),
            volume.deletion_protection.into(),
            volume.state.name().into(),
            reason.into(),
            volume.since.into(),
            volume.id.as_str().into(),
            volume.version.into(),
        ],
    )
}

/// The volume of this id, whoever owns it.
pub fn get(tx: &mut Tx<'_>, id: &VolumeId) -> Result<Option<Volume>> {
    tx.query_one(select!("where id = $1"), &[id.as_str().into()])?.map(read).transpose()
}

/// The live volume of this name within a scope.
pub fn find(tx: &mut Tx<'_>, scope: &str, name: &str) -> Result<Option<Volume>> {
    let sql = select!("where scope = $1 and name = $2 and state <> 'DESTROYED'");
    tx.query_one(sql, &[scope.into(), name.into()])?.map(read).transpose()
}

/// A page of volumes, newest first.
pub fn list(tx: &mut Tx<'_>, listing: &Listing<'_>) -> Result<Vec<Volume>> {
    let sql = list_sql!(select, listing);
    tx.query(sql, &listing.params_with_scope())?.into_iter().map(read).collect()
}

/// How many live volumes a scope has, and their size in gigabytes.
pub fn totals(tx: &mut Tx<'_>, scope: &str) -> Result<(u64, u64)> {
    let sql = "select count(*), cast(coalesce(sum(size_gb), 0) as bigint) from volumes \
               where scope = $1 and remains = 1";
    let mut row = tx.query_one(sql, &[scope.into()])?.ok_or(Error::Conflict)?;
    Ok((row.count()?, row.count()?))
}

/// What all volumes promise together, in gigabytes; one that grows counts with its new size.
pub fn promised_gb(tx: &mut Tx<'_>) -> Result<u64> {
    let sql = "select cast(coalesce(sum(coalesce(to_gb, size_gb)), 0) as bigint) from volumes where remains = 1";
    tx.query_one(sql, &[])?.ok_or(Error::Conflict)?.count()
}

/// Every volume that is not destroyed, and whether a request is changing it at this moment.
pub fn claimed(tx: &mut Tx<'_>) -> Result<Vec<(Volume, bool)>> {
    let busy = "select distinct volume_id from requests where ended_us is null and volume_id is not null";
    let busy: Vec<VolumeId> = tx.query(busy, &[])?.into_iter().map(|mut row| row.id()).collect::<Result<_>>()?;
    let volumes = tx.query(select!("where state <> 'DESTROYED'"), &[])?;
    volumes
        .into_iter()
        .map(|row| {
            let volume = read(row)?;
            let is_busy = busy.contains(&volume.id);
            Ok((volume, is_busy))
        })
        .collect()
}

fn state_columns(state: &VolumeState) -> (Option<u64>, bool, Option<&str>) {
    match state {
        VolumeState::Resizing { to_gb } => (Some(*to_gb), true, None),
        VolumeState::Failed { reason, remains } => (None, *remains, Some(reason)),
        VolumeState::Pending | VolumeState::Creating | VolumeState::Ready => (None, true, None),
        VolumeState::Destroying => (None, true, None),
        VolumeState::Destroyed => (None, false, None),
    }
}

fn read(mut row: Row) -> Result<Volume> {
    let id = row.id()?;
    let name = row.text()?;
    let owner = Owner { user: row.id()?, org: row.maybe_id()? };
    let (size_gb, first_size_gb): (u64, u64) = (row.count()?, row.count()?);
    let (to_gb, remains, deletion_protection) = (row.maybe_integer()?, row.flag()?, row.flag()?);
    let (state, reason) = (row.text()?, row.maybe_text()?);
    let state = match state.as_str() {
        "PENDING" => VolumeState::Pending,
        "CREATING" => VolumeState::Creating,
        "READY" => VolumeState::Ready,
        "RESIZING" => VolumeState::Resizing { to_gb: to_gb.and_then(|gb| gb.try_into().ok()).unwrap_or(size_gb) },
        "DESTROYING" => VolumeState::Destroying,
        "DESTROYED" => VolumeState::Destroyed,
        "FAILED" => VolumeState::Failed { reason: reason.unwrap_or_default(), remains },
        other => return Err(Error::Corrupt(format!("there is no storage state {other}"))),
    };
    let (since, created, version) = (row.time()?, row.time()?, row.integer()?);
    Ok(Volume { id, name, owner, size_gb, first_size_gb, deletion_protection, state, since, created, version })
}
