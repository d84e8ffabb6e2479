//! `tarn storage …`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use tarn_api::storage::StorageCreateRequest;

use crate::commands::Context;
use crate::commands::accepted::{self, Wait};
use crate::commands::display::{self, Listing, Query, Watch};
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::text_field;
use crate::terminal::prompts;
use crate::terminal::tables::{self, Column};

/// The length of an ID without its prefix `s-`.
const ID_LENGTH: usize = 12;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a volume
    Create(Create),
    /// Destroy a volume and its data
    #[command(visible_alias = "rm")]
    Destroy {
        /// The volume ID or name
        storage: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List volumes
    #[command(visible_alias = "ls")]
    List(Listing),
    /// Show a volume
    Info {
        /// The volume ID or name
        storage: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Change a volume
    Edit(Edit),
}

#[derive(Args, Debug)]
pub struct Create {
    /// The size in GB (10⁹ bytes)
    size_gb: u64,
    /// A name; chosen by the engine when absent
    #[arg(long)]
    name: Option<String>,
    /// Refuse to destroy the volume until the protection is turned off
    #[arg(long)]
    deletion_protection: bool,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args, Debug)]
pub struct Edit {
    /// The volume ID or name
    storage: String,
    /// A new name
    #[arg(long)]
    name: Option<String>,
    /// Whether the engine refuses to destroy the volume
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new())]
    deletion_protection: Option<bool>,
    /// A new size in GB; a volume can only grow
    #[arg(short, long, value_name = "GB")]
    size: Option<u64>,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) async fn run_storage_command(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Create(create) => {
            let Create { size_gb: size, name, deletion_protection, wait } = create;
            let body = StorageCreateRequest { size, name, deletion_protection };
            let accepted = ctx.api.send_json(Method::POST, "/storage/create", &body).await?;
            accepted::report_accepted(ctx, accepted, wait).await
        }
        Command::Destroy { storage, wait } => {
            prompts::confirm(ctx, &format!("Destroy volume {storage} and its data?")).await?;
            let path = format!("/storage/{}", paths::encode_segment(&resolve_volume_id(ctx, &storage).await?)?);
            let accepted = ctx.api.send_empty(Method::DELETE, &path).await?;
            accepted::report_accepted(ctx, accepted, wait).await
        }
        Command::List(listing) => {
            let query = listing.query(1000);
            let nothing = "There are no volumes; create one with `tarn storage create SIZE_GB`.";
            let question = Query::all_pages("/storage/list", &query, "volumes");
            display::print_query(ctx, listing.watch, question, |body| {
                tables::render_list(ctx, &body["volumes"], VOLUMES, nothing)
            })
            .await
        }
        Command::Info { storage, watch } => {
            let path = format!("/storage/info/{}", paths::encode_segment(&resolve_volume_id(ctx, &storage).await?)?);
            display::print_query(ctx, watch, Query::item(&path), |body| {
                tables::render_fields(&body["storage_info"], FIELDS)
            })
            .await
        }
        Command::Edit(edit) => edit_volume(ctx, edit).await,
    }
}

/// Resolves an ID or a name to an ID, because the API takes IDs only.
pub(crate) async fn resolve_volume_id(ctx: &Context<'_>, asked: &str) -> Result<String> {
    if asked.strip_prefix("s-").is_some_and(|rest| rest.len() == ID_LENGTH) {
        return Ok(asked.to_owned());
    }
    // The caller's own volumes come first: names are unique within an organization only.
    for of_organization in ["false", "true"] {
        let query = [("include_org", of_organization.to_owned()), ("limit", "1000".to_owned())];
        let body = ctx.api.get_all_pages("/storage/list", &query, "volumes").await?;
        let found = body["volumes"].as_array().into_iter().flatten().find(|volume| text_field(volume, "name") == asked);
        if let Some(volume) = found {
            return Ok(text_field(volume, "id").to_owned());
        }
    }
    Err(Failure::not_found(format!("there is no volume {asked}; list volumes with `tarn storage list`")))
}

async fn edit_volume(ctx: &Context<'_>, edit: Edit) -> Result<()> {
    let Edit { storage, name, deletion_protection, size, wait } = edit;
    if name.is_none() && deletion_protection.is_none() && size.is_none() {
        return Err(Failure::usage("nothing to change; give --name, --size or --deletion-protection"));
    }
    let body = json!({ "tp_storage_name": name, "size_gb": size, "deletion_protection": deletion_protection });
    let path = format!("/storage/edit/{}", paths::encode_segment(&resolve_volume_id(ctx, &storage).await?)?);
    let accepted = ctx.api.send_json(Method::PATCH, &path, &body).await?;
    accepted::report_accepted(ctx, accepted, wait).await
}

fn size_cell(row: &Value) -> String {
    match (row["used_gb"].as_f64(), tables::number_cell(row, "size_gb")) {
        (_, size) if size.is_empty() => size,
        (Some(used), size) => format!("{used:.1} of {size} GB"),
        (None, size) => format!("{size} GB"),
    }
}

fn attached_clusters_cell(row: &Value) -> String {
    tables::join_cells(&row["attached_clusters"], |each| each.as_str().unwrap_or_default().into())
}

const VOLUMES: &[Column] = &[
    ("NAME", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("STATUS", |row| text_field(row, "status").into()),
    ("SIZE", size_cell),
    ("CLUSTERS", attached_clusters_cell),
    ("EXPLANATION", |row| text_field(row, "explanation").into()),
];

const FIELDS: &[Column] = &[
    ("Name", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("Status", |row| text_field(row, "status").into()),
    ("Explanation", |row| text_field(row, "explanation").into()),
    ("Size", size_cell),
    ("Clusters", attached_clusters_cell),
    ("Owner", |row| text_field(row, "owner").into()),
    ("Protected", tables::deletion_protection_cell),
    ("$/h", |row| tables::number_cell(row, "hourly_rate")),
    ("Created", |row| tables::time_cell(row, "created_at")),
];
