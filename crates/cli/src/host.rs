//! `tarn admin host …` and `tarn admin gpu …`: the host, its GPUs, and what is given to nobody.

use clap::{Args, Subcommand};
use http::Method;
use tarn_api::host::DrainRequest;

use crate::commands::Context;
use crate::failure::Result;
use crate::output::{self, text};
use crate::tables::{self, Column};
use crate::{paths, show};

#[derive(Args, Debug)]
pub struct Host {
    #[command(subcommand)]
    command: Option<HostCommand>,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// Place nothing new; what runs goes on
    Drain {
        /// Why, for those who wait
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Place new clusters again
    Undrain,
}

#[derive(Debug, Subcommand)]
pub enum Gpu {
    /// List the GPUs of the host: how they are, who has them, and which are not offered
    #[command(visible_alias = "ls")]
    List,
    /// Give a GPU to nobody any more; whoever has it keeps it
    Drain {
        /// The GPU's ID
        gpu: String,
        /// Why, for those who wait
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Offer a GPU again
    Undrain {
        /// The GPU's ID
        gpu: String,
    },
    /// Say that a GPU is right again of which something fatal was seen
    Clear {
        /// The GPU's ID
        gpu: String,
    },
}

pub(crate) async fn run(ctx: &Context<'_>, host: Host) -> Result<()> {
    match host.command {
        None => {
            let body = ctx.engine.get("/admin/host/info", &[]).await?;
            show::once(ctx, &body, output::message)
        }
        Some(HostCommand::Drain { reason }) => drain(ctx, "/admin/host/drain", reason).await,
        Some(HostCommand::Undrain) => act(ctx, "/admin/host/undrain").await,
    }
}

/// What is done about GPUs.
pub(crate) async fn gpu(ctx: &Context<'_>, gpu: Gpu) -> Result<()> {
    match gpu {
        Gpu::List => {
            let body = ctx.engine.get("/admin/gpu/list", &[]).await?;
            show::once(ctx, &body, |body| tables::of(ctx, &body["gpus"], GPUS, "The host has no GPUs."))
        }
        Gpu::Drain { gpu, reason } => drain(ctx, &format!("/admin/gpu/drain/{}", paths::segment(&gpu)?), reason).await,
        Gpu::Undrain { gpu } => act(ctx, &format!("/admin/gpu/undrain/{}", paths::segment(&gpu)?)).await,
        Gpu::Clear { gpu } => act(ctx, &format!("/admin/gpu/clear/{}", paths::segment(&gpu)?)).await,
    }
}

async fn drain(ctx: &Context<'_>, path: &str, reason: Option<String>) -> Result<()> {
    let body = ctx.engine.send(Method::POST, path, &DrainRequest { reason }).await?;
    show::once(ctx, &body, output::message)
}

async fn act(ctx: &Context<'_>, path: &str) -> Result<()> {
    let body = ctx.engine.act(Method::POST, path).await?;
    show::once(ctx, &body, output::message)
}

const GPUS: &[Column] = &[
    ("GPU", |row| text(row, "id").into()),
    ("MODEL", |row| {
        let note = if row["simulated"] == true { " (simulated)" } else { "" };
        format!("{}{note}", text(row, "model"))
    }),
    ("HEALTH", |row| text(row, "health").into()),
    ("OWNER", |row| text(row, "instance_id").into()),
    ("NOT OFFERED BECAUSE", |row| text(row, "withheld").into()),
];
