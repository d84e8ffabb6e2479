//! `tarn cluster attach` and `tarn cluster detach`.

use clap::Args;
use http::Method;
use serde_json::json;

use crate::commands::Context;
use crate::commands::accepted::{self, Wait};
use crate::commands::storage;
use crate::failure::Result;

#[derive(Args, Debug)]
pub struct Volume {
    /// The cluster's ID or name
    cluster: String,
    /// The volume's ID or name
    storage: String,
    /// Do it without restarting the instances, where the engine can
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) async fn attach_volume(ctx: &Context<'_>, volume: Volume) -> Result<()> {
    let storage = storage::resolve_volume_id(ctx, &volume.storage).await?;
    let body = json!({ "storage_id": storage, "cluster_ids": [volume.cluster], "live": volume.live });
    let accepted = ctx.api.send_json(Method::POST, "/storage/attach", &body).await?;
    accepted::report_accepted(ctx, accepted, volume.wait).await
}

pub(crate) async fn detach_volume(ctx: &Context<'_>, volume: Volume) -> Result<()> {
    let storage = storage::resolve_volume_id(ctx, &volume.storage).await?;
    let body = json!({ "storage_id": storage, "cluster_id": volume.cluster, "live": volume.live });
    let accepted = ctx.api.send_json(Method::POST, "/storage/detach", &body).await?;
    accepted::report_accepted(ctx, accepted, volume.wait).await
}
