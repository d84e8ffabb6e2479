//! `tarn cluster attach` and `tarn cluster detach`: volumes on clusters.

use clap::Args;
use http::Method;
use serde_json::json;

use crate::accepted::{self, Wait};
use crate::commands::Context;
use crate::failure::Result;
use crate::storage;

#[derive(Args, Debug)]
pub struct Volume {
    /// The cluster's ID or name
    cluster: String,
    /// The volume's ID or name
    storage: String,
    /// Without a restart of the machines, where the engine can do that
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) async fn attach(ctx: &Context<'_>, volume: Volume) -> Result<()> {
    let storage = storage::id_of(ctx, &volume.storage).await?;
    let body = json!({ "storage_id": storage, "cluster_ids": [volume.cluster], "live": volume.live });
    let accepted = ctx.engine.send(Method::POST, "/storage/attach", &body).await?;
    accepted::finish(ctx, accepted, volume.wait).await
}

pub(crate) async fn detach(ctx: &Context<'_>, volume: Volume) -> Result<()> {
    let storage = storage::id_of(ctx, &volume.storage).await?;
    let body = json!({ "storage_id": storage, "cluster_id": volume.cluster, "live": volume.live });
    let accepted = ctx.engine.send(Method::POST, "/storage/detach", &body).await?;
    accepted::finish(ctx, accepted, volume.wait).await
}
