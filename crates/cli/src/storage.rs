//! `tarn storage …`.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use tarn_api::storage::StorageCreateRequest;

use crate::accepted::{self, Wait};
use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::text;
use crate::show::{self, Listing, Question, Watch};
use crate::tables::{self, Column};
use crate::{paths, prompts};

/// How long an ID is behind its `s-`.
const ID_LENGTH: usize = 12;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a volume
    Create(Create),
    /// Destroy a volume with its data
    #[command(visible_alias = "rm")]
    Destroy {
        /// Its ID or name
        storage: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List volumes
    #[command(visible_alias = "ls")]
    List(Listing),
    /// Show a volume
    Info {
        /// Its ID or name
        storage: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Change a volume
    Edit(Edit),
}

#[derive(Args, Debug)]
pub struct Create {
    /// Its size in GB of 10⁹ bytes
    size_gb: u64,
    /// What it is called; a name is made up without it
    #[arg(long)]
    name: Option<String>,
    /// Refuse to destroy it until this is turned off
    #[arg(long)]
    deletion_protection: bool,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args, Debug)]
pub struct Edit {
    /// Its ID or name
    storage: String,
    /// A new name
    #[arg(long)]
    name: Option<String>,
    /// Whether destroying it is refused
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new())]
    deletion_protection: Option<bool>,
    /// A new size in GB; a volume can only grow
    #[arg(short, long, value_name = "GB")]
    size: Option<u64>,
    #[command(flatten)]
    wait: Wait,
}

pub(crate) async fn run(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Create(create) => {
            let Create { size_gb: size, name, deletion_protection, wait } = create;
            let body = StorageCreateRequest { size, name, deletion_protection };
            let accepted = ctx.engine.send(Method::POST, "/storage/create", &body).await?;
            accepted::finish(ctx, accepted, wait).await
        }
        Command::Destroy { storage, wait } => {
            prompts::confirm(ctx, &format!("Destroy volume {storage} with its data?")).await?;
            let path = format!("/storage/{}", paths::segment(&id_of(ctx, &storage).await?)?);
            let accepted = ctx.engine.act(Method::DELETE, &path).await?;
            accepted::finish(ctx, accepted, wait).await
        }
        Command::List(listing) => {
            let query = listing.query(1000);
            let nothing = "There are no volumes; create one with `tarn storage create SIZE_GB`.";
            let question = Question::list("/storage/list", &query, "volumes");
            show::answer(ctx, listing.watch, question, |body| tables::of(ctx, &body["volumes"], VOLUMES, nothing)).await
        }
        Command::Info { storage, watch } => {
            let path = format!("/storage/info/{}", paths::segment(&id_of(ctx, &storage).await?)?);
            show::answer(ctx, watch, Question::of(&path), |body| tables::describe(&body["storage_info"], FIELDS)).await
        }
        Command::Edit(edit) => self::edit(ctx, edit).await,
    }
}

/// The ID of the volume that somebody means by an ID or a name: the API knows volumes by their IDs only.
pub(crate) async fn id_of(ctx: &Context<'_>, asked: &str) -> Result<String> {
    if asked.strip_prefix("s-").is_some_and(|rest| rest.len() == ID_LENGTH) {
        return Ok(asked.to_owned());
    }
    // One's own come first: names are unique among those who share things.
    for of_organization in ["false", "true"] {
        let query = [("include_org", of_organization.to_owned()), ("limit", "1000".to_owned())];
        let body = ctx.engine.list("/storage/list", &query, "volumes").await?;
        let found = body["volumes"].as_array().into_iter().flatten().find(|volume| text(volume, "name") == asked);
        if let Some(volume) = found {
            return Ok(text(volume, "id").to_owned());
        }
    }
    Err(Failure::not_found(format!("there is no volume {asked}; see `tarn storage list`")))
}

async fn edit(ctx: &Context<'_>, edit: Edit) -> Result<()> {
    let Edit { storage, name, deletion_protection, size, wait } = edit;
    if name.is_none() && deletion_protection.is_none() && size.is_none() {
        return Err(Failure::usage("nothing is to be changed; give --name, --size or --deletion-protection"));
    }
    let body = json!({ "tp_storage_name": name, "size_gb": size, "deletion_protection": deletion_protection });
    let path = format!("/storage/edit/{}", paths::segment(&id_of(ctx, &storage).await?)?);
    let accepted = ctx.engine.send(Method::PATCH, &path, &body).await?;
    accepted::finish(ctx, accepted, wait).await
}

fn size(row: &Value) -> String {
    match (row["used_gb"].as_f64(), tables::number(row, "size_gb")) {
        (_, size) if size.is_empty() => size,
        (Some(used), size) => format!("{used:.1} of {size} GB"),
        (None, size) => format!("{size} GB"),
    }
}

fn clusters(row: &Value) -> String {
    tables::joined(&row["attached_clusters"], |each| each.as_str().unwrap_or_default().into())
}

const VOLUMES: &[Column] = &[
    ("NAME", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("STATUS", |row| text(row, "status").into()),
    ("SIZE", size),
    ("CLUSTERS", clusters),
    ("EXPLANATION", |row| text(row, "explanation").into()),
];

const FIELDS: &[Column] = &[
    ("Name", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("Status", |row| text(row, "status").into()),
    ("Explanation", |row| text(row, "explanation").into()),
    ("Size", size),
    ("Clusters", clusters),
    ("Owner", |row| text(row, "owner").into()),
    ("Protected", tables::protected),
    ("$/h", |row| tables::number(row, "hourly_rate")),
    ("Created", |row| tables::time(row, "created_at")),
];
