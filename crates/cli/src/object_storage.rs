//! `tarn object-storage …`: what is in the buckets is read and written by S3's own clients, which are told here where it is.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, text};
use crate::sections::{self, Kind};
use crate::tables::{self, Column};
use crate::{paths, prompts, show};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an account and its keys
    Enable,
    /// Remove the account with its keys and buckets; refused while there are objects
    Disable {
        /// Also with all objects, which are gone then
        #[arg(long)]
        force: bool,
    },
    /// Show the keys
    Credentials,
    /// Tell another program where it is, and the keys
    #[command(subcommand)]
    Configure(Configure),
    /// Buckets
    #[command(subcommand)]
    Bucket(Bucket),
    /// How much there is
    Usage,
}

#[derive(Debug, Subcommand)]
pub enum Configure {
    /// The command line client of AWS, and whatever reads its files
    Aws,
    /// rclone
    Rclone,
}

#[derive(Debug, Subcommand)]
pub enum Bucket {
    /// List buckets
    #[command(visible_alias = "ls")]
    List,
    /// Create a bucket
    Create {
        /// Its name
        name: String,
    },
    /// Delete an empty bucket
    #[command(visible_alias = "rm")]
    Delete {
        /// Its name
        name: String,
    },
}

pub(crate) async fn run(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Enable => {
            let body = ctx.engine.act(Method::POST, "/object-storage/enable").await?;
            show::once(ctx, &body, credentials)
        }
        Command::Disable { force } => {
            let what = if force { "all buckets and objects" } else { "its keys and buckets" };
            prompts::confirm(ctx, &format!("Remove object storage with {what}?")).await?;
            let path = format!("/object-storage/disable?force={force}");
            let body = ctx.engine.act(Method::DELETE, &path).await?;
            show::once(ctx, &body, output::message)
        }
        Command::Credentials => {
            let body = ctx.engine.get("/object-storage/credentials", &[]).await?;
            show::once(ctx, &body, credentials)
        }
        Command::Configure(program) => configure(ctx, &program).await,
        Command::Bucket(bucket) => self::bucket(ctx, bucket).await,
        Command::Usage => {
            let body = ctx.engine.get("/object-storage/usage", &[]).await?;
            show::once(ctx, &body, output::message)
        }
    }
}

async fn bucket(ctx: &Context<'_>, command: Bucket) -> Result<()> {
    match command {
        Bucket::List => {
            let body = ctx.engine.get("/object-storage/bucket/list", &[]).await?;
            show::once(ctx, &body, |body| match tables::lines(&body["buckets"]) {
                lines if lines.is_empty() => "There are no buckets.".to_owned(),
                lines => lines,
            })
        }
        Bucket::Create { name } => {
            let path = format!("/object-storage/bucket/create/{}", paths::segment(&name)?);
            let body = ctx.engine.act(Method::PUT, &path).await?;
            show::once(ctx, &body, output::message)
        }
        Bucket::Delete { name } => {
            let path = format!("/object-storage/bucket/delete/{}", paths::segment(&name)?);
            let body = ctx.engine.act(Method::DELETE, &path).await?;
            show::once(ctx, &body, |_| format!("Bucket {name} is deleted."))
        }
    }
}

/// Writes the sections into the files of the other program, in the place of those that are there.
async fn configure(ctx: &Context<'_>, program: &Configure) -> Result<()> {
    let home = ctx
        .surroundings
        .home
        .as_deref()
        .ok_or_else(|| Failure::new("there is no home directory to write to; set HOME"))?;
    let (path, files): (_, &[(&str, Kind)]) = match program {
        Configure::Aws => ("aws", AWS),
        Configure::Rclone => ("rclone", RCLONE),
    };
    let body = ctx.engine.get(&format!("/object-storage/configure/{path}"), &[]).await?;
    let mut written = Vec::new();
    for (name, kind) in files {
        let file = sections::put(home, kind, text(&body, name))?;
        written.push(format!("[{}] is in {} now.", kind.name, file.display()));
    }
    show::once(ctx, &body, |_| written.join("\n"))
}

fn credentials(body: &Value) -> String {
    let lines = tables::describe(body, CREDENTIALS);
    match output::message(body) {
        message if message.is_empty() => lines,
        message => format!("{message}\n{lines}"),
    }
}

const CREDENTIALS: &[Column] = &[
    ("Access Key ID:", |row| text(row, "access_key_id").into()),
    ("Secret Access Key:", |row| text(row, "secret_access_key").into()),
    ("Endpoint:", |row| text(row, "endpoint").into()),
    ("Region:", |row| text(row, "region").into()),
];

const AWS: &[(&str, Kind)] = &[
    (
        "credentials_file",
        Kind {
            file: ".aws/credentials",
            name: "tp",
            keys: &["aws_access_key_id", "aws_secret_access_key", "aws_session_token"],
        },
    ),
    (
        "config_file",
        Kind {
            file: ".aws/config",
            name: "profile tp",
            keys: &["region", "endpoint_url", "s3", "addressing_style", "signature_version"],
        },
    ),
];

const RCLONE: &[(&str, Kind)] = &[(
    "rclone_config",
    Kind {
        file: ".config/rclone/rclone.conf",
        name: "tp",
        keys: &[
            "type",
            "provider",
            "env_auth",
            "access_key_id",
            "secret_access_key",
            "endpoint",
            "region",
            "location_constraint",
            "acl",
            "force_path_style",
            "list_version",
            "list_url_encode",
            "use_multipart_etag",
        ],
    },
)];
