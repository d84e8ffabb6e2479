//! Attachments: which volume is on which cluster. One that ended has no row.

use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::storage::{Attachment, AttachmentState};

use crate::db::Row;
use crate::{Error, Result, Tx};

/// Adds a new attachment; `Taken` when the cluster has one already.
pub fn insert(tx: &mut Tx<'_>, attachment: &Attachment) -> Result<()> {
    let sql = "insert into attachments (cluster_id, volume_id, state, live, since_us) values ($1, $2, $3, $4, $5)";
    tx.execute(
        sql,
        &[
            attachment.cluster.as_str().into(),
            attachment.volume.as_str().into(),
            attachment.state.name().into(),
            attachment.live.into(),
            attachment.since.into(),
        ],
    )?;
    Ok(())
}

/// Saves the state of an attachment.
pub fn save(tx: &mut Tx<'_>, attachment: &Attachment) -> Result<()> {
    tx.execute_guarded(
        "update attachments set state = $1, live = $2, since_us = $3 where cluster_id = $4 and volume_id = $5",
        &[
            attachment.state.name().into(),
            attachment.live.into(),
            attachment.since.into(),
            attachment.cluster.as_str().into(),
            attachment.volume.as_str().into(),
        ],
    )
}

/// Ends an attachment.
pub fn remove(tx: &mut Tx<'_>, cluster: &ClusterId, volume: &VolumeId) -> Result<()> {
    let sql = "delete from attachments where cluster_id = $1 and volume_id = $2";
    tx.execute(sql, &[cluster.as_str().into(), volume.as_str().into()])?;
    Ok(())
}

/// The volume on a cluster.
pub fn of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Option<Attachment>> {
    let sql = "select cluster_id, volume_id, state, live, since_us from attachments where cluster_id = $1";
    tx.query_one(sql, &[cluster.as_str().into()])?.map(read).transpose()
}

/// The clusters a volume is on.
pub fn of_volume(tx: &mut Tx<'_>, volume: &VolumeId) -> Result<Vec<Attachment>> {
    let sql =
        "select cluster_id, volume_id, state, live, since_us from attachments where volume_id = $1 order by since_us";
    tx.query(sql, &[volume.as_str().into()])?.into_iter().map(read).collect()
}

/// Everything that is attached within a scope, for lists.
pub fn of_scope(tx: &mut Tx<'_>, scope: &str) -> Result<Vec<Attachment>> {
    let sql = "select a.cluster_id, a.volume_id, a.state, a.live, a.since_us from volumes v \
               join attachments a on a.volume_id = v.id where v.scope = $1 and v.state <> 'DESTROYED'";
    tx.query(sql, &[scope.into()])?.into_iter().map(read).collect()
}

fn read(mut row: Row) -> Result<Attachment> {
    let (cluster, volume) = (row.id()?, row.id()?);
    let state = match row.text()?.as_str() {
        "ATTACHING" => AttachmentState::Attaching,
        "ATTACHED" => AttachmentState::Attached,
        "DETACHING" => AttachmentState::Detaching,
        other => return Err(Error::Corrupt(format!("there is no attachment state {other}"))),
    };
    Ok(Attachment { volume, cluster, state, live: row.flag()?, since: row.time()? })
}
