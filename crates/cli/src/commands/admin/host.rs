//! `tarn admin host …` and `tarn admin gpu …`: the host, its GPUs, and draining them.

use clap::{Args, Subcommand};
use http::Method;
use tarn_api::host::DrainRequest;

use super::post_action;
use crate::commands::Context;
use crate::commands::display;
use crate::failure::Result;
use crate::files::paths;
use crate::terminal::output::{self, text_field};
use crate::terminal::tables::{self, Column};

#[derive(Args, Debug)]
pub struct Host {
    #[command(subcommand)]
    command: Option<HostCommand>,
}

#[derive(Debug, Subcommand)]
enum HostCommand {
    /// Stop placing new clusters; running clusters continue
    Drain {
        /// The reason, shown to users who wait
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Resume placing new clusters
    Undrain,
}

#[derive(Debug, Subcommand)]
pub enum Gpu {
    /// List the GPUs of the host with their health, their owner, and why they are not offered
    #[command(visible_alias = "ls")]
    List,
    /// Stop offering a GPU; an instance that has it keeps it
    Drain {
        /// The GPU ID
        gpu: String,
        /// The reason, shown to users who wait
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Offer a GPU again
    Undrain {
        /// The GPU ID
        gpu: String,
    },
    /// Declare a GPU healthy again after a fatal fault
    Clear {
        /// The GPU ID
        gpu: String,
    },
}

pub(crate) async fn run_host_command(ctx: &Context<'_>, host: Host) -> Result<()> {
    match host.command {
        None => {
            let body = ctx.api.get("/admin/host/info", &[]).await?;
            display::print_body(ctx, &body, output::message_of)
        }
        Some(HostCommand::Drain { reason }) => send_drain(ctx, "/admin/host/drain", reason).await,
        Some(HostCommand::Undrain) => post_action(ctx, "/admin/host/undrain").await,
    }
}

/// Runs `tarn admin gpu …`.
pub(crate) async fn run_gpu_command(ctx: &Context<'_>, gpu: Gpu) -> Result<()> {
    match gpu {
        Gpu::List => {
            let body = ctx.api.get("/admin/gpu/list", &[]).await?;
            display::print_body(ctx, &body, |body| {
                tables::render_list(ctx, &body["gpus"], GPUS, "The host has no GPUs.")
            })
        }
        Gpu::Drain { gpu, reason } => {
            send_drain(ctx, &format!("/admin/gpu/drain/{}", paths::encode_segment(&gpu)?), reason).await
        }
        Gpu::Undrain { gpu } => post_action(ctx, &format!("/admin/gpu/undrain/{}", paths::encode_segment(&gpu)?)).await,
        Gpu::Clear { gpu } => post_action(ctx, &format!("/admin/gpu/clear/{}", paths::encode_segment(&gpu)?)).await,
    }
}

async fn send_drain(ctx: &Context<'_>, path: &str, reason: Option<String>) -> Result<()> {
    let body = ctx.api.send_json(Method::POST, path, &DrainRequest { reason }).await?;
    display::print_body(ctx, &body, output::message_of)
}

const GPUS: &[Column] = &[
    ("GPU", |row| text_field(row, "id").into()),
    ("MODEL", |row| {
        let note = if row["simulated"] == true { " (simulated)" } else { "" };
        format!("{}{note}", text_field(row, "model"))
    }),
    ("HEALTH", |row| text_field(row, "health").into()),
    ("OWNER", |row| text_field(row, "instance_id").into()),
    ("NOT OFFERED BECAUSE", |row| text_field(row, "withheld").into()),
];
