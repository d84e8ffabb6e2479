//! Attachments: which volume is attached to which cluster. An attachment that ended has no row.

use tarn_model::ids::{ClusterId, VolumeId};
use tarn_model::storage::{Attachment, AttachmentState};

use crate::db::{Param, Row, params};
use crate::{Error, Result, Tx};

/// Adds an attachment. `Taken` when the cluster has one already.
pub fn insert(tx: &mut Tx<'_>, attachment: &Attachment) -> Result<()> {
    let sql = "insert into attachments (cluster_id, volume_id, state, live, since_us) values ($1, $2, $3, $4, $5)";
    tx.run(sql, &params!(attachment: cluster, volume, state.name(), live, since))
}

/// Saves the state of an attachment.
pub fn save(tx: &mut Tx<'_>, attachment: &Attachment) -> Result<()> {
    tx.execute_guarded(
        "update attachments set state = $1, live = $2, since_us = $3 where cluster_id = $4 and volume_id = $5",
        &params!(attachment: state.name(), live, since, cluster, volume),
    )
}

/// Removes an attachment.
pub fn remove(tx: &mut Tx<'_>, cluster: &ClusterId, volume: &VolumeId) -> Result<()> {
    let sql = "delete from attachments where cluster_id = $1 and volume_id = $2";
    tx.run(sql, &params![cluster, volume])
}

/// Returns the attachment of a cluster.
pub fn of_cluster(tx: &mut Tx<'_>, cluster: &ClusterId) -> Result<Option<Attachment>> {
    let sql = "select cluster_id, volume_id, state, live, since_us from attachments where cluster_id = $1";
    tx.row(sql, &params![cluster], read_attachment)
}

/// Returns the attachments of a volume.
pub fn of_volume(tx: &mut Tx<'_>, volume: &VolumeId) -> Result<Vec<Attachment>> {
    let sql =
        "select cluster_id, volume_id, state, live, since_us from attachments where volume_id = $1 order by since_us";
    tx.rows(sql, &params![volume], read_attachment)
}

/// Returns the attachments of several clusters. Each query covers twenty ids.
pub fn of_clusters(tx: &mut Tx<'_>, clusters: &[&str]) -> Result<Vec<Attachment>> {
    let sql = "select cluster_id, volume_id, state, live, since_us from attachments where cluster_id in \
               ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)";
    query_by_ids(tx, sql, clusters)
}

/// Returns the attachments of several volumes. Each query covers twenty ids.
pub fn of_volumes(tx: &mut Tx<'_>, volumes: &[&str]) -> Result<Vec<Attachment>> {
    let sql = "select cluster_id, volume_id, state, live, since_us from attachments where volume_id in \
               ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20) order by since_us";
    query_by_ids(tx, sql, volumes)
}

fn query_by_ids(tx: &mut Tx<'_>, sql: &'static str, ids: &[&str]) -> Result<Vec<Attachment>> {
    let mut attachments = Vec::new();
    for batch in ids.chunks(20) {
        let params: [Param<'_>; 20] = std::array::from_fn(|at| batch.get(at).map_or(Param::Null, |id| Param::Text(id)));
        attachments.extend(tx.rows(sql, &params, read_attachment)?);
    }
    Ok(attachments)
}

fn read_attachment(row: &mut Row) -> Result<Attachment> {
    let (cluster, volume) = (row.id()?, row.id()?);
    let state = match row.text()?.as_str() {
        "ATTACHING" => AttachmentState::Attaching,
        "ATTACHED" => AttachmentState::Attached,
        "DETACHING" => AttachmentState::Detaching,
        other => return Err(Error::Corrupt(format!("there is no attachment state {other}"))),
    };
    Ok(Attachment { volume, cluster, state, live: row.flag()?, since: row.time()? })
}
