//! `tarn object-storage …`: the account, its keys and its buckets. Objects are read and written with S3 clients, which
//! `configure` sets up.

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use crate::commands::Context;
use crate::commands::display;
use crate::failure::{Failure, Result};
use crate::files::ini_sections::{self, AllowedSection};
use crate::files::paths;
use crate::terminal::output::{self, text_field};
use crate::terminal::prompts;
use crate::terminal::tables::{self, Column};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Enable object storage and create its keys
    Enable,
    /// Disable object storage and remove its keys and buckets; refused while there are objects
    Disable {
        /// Also delete all objects
        #[arg(long)]
        force: bool,
    },
    /// Show the endpoint and the keys
    Credentials,
    /// Write the endpoint and the keys into the configuration of another program
    #[command(subcommand)]
    Configure(Configure),
    /// Manage buckets
    #[command(subcommand)]
    Bucket(Bucket),
    /// Show how much is stored
    Usage,
}

#[derive(Debug, Subcommand)]
pub enum Configure {
    /// The AWS CLI, and other programs that read its files
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
        /// The bucket name
        name: String,
    },
    /// Delete an empty bucket
    #[command(visible_alias = "rm")]
    Delete {
        /// The bucket name
        name: String,
    },
}

pub(crate) async fn run_object_storage_command(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Enable => {
            let body = ctx.api.send_empty(Method::POST, "/object-storage/enable").await?;
            display::print_body(ctx, &body, render_credentials)
        }
        Command::Disable { force } => {
            let what = if force { "all buckets and objects" } else { "its keys and buckets" };
            prompts::confirm(ctx, &format!("Disable object storage and remove {what}?")).await?;
            let path = format!("/object-storage/disable?force={force}");
            let body = ctx.api.send_empty(Method::DELETE, &path).await?;
            display::print_body(ctx, &body, output::message_of)
        }
        Command::Credentials => {
            let body = ctx.api.get("/object-storage/credentials", &[]).await?;
            display::print_body(ctx, &body, render_credentials)
        }
        Command::Configure(program) => write_client_config(ctx, &program).await,
        Command::Bucket(bucket) => run_bucket_command(ctx, bucket).await,
        Command::Usage => {
            let body = ctx.api.get("/object-storage/usage", &[]).await?;
            display::print_body(ctx, &body, output::message_of)
        }
    }
}

async fn run_bucket_command(ctx: &Context<'_>, command: Bucket) -> Result<()> {
    match command {
        Bucket::List => {
            let body = ctx.api.get("/object-storage/bucket/list", &[]).await?;
            display::print_body(ctx, &body, |body| match tables::render_lines(&body["buckets"]) {
                lines if lines.is_empty() => "There are no buckets.".to_owned(),
                lines => lines,
            })
        }
        Bucket::Create { name } => {
            let path = format!("/object-storage/bucket/create/{}", paths::encode_segment(&name)?);
            let body = ctx.api.send_empty(Method::PUT, &path).await?;
            display::print_body(ctx, &body, output::message_of)
        }
        Bucket::Delete { name } => {
            let path = format!("/object-storage/bucket/delete/{}", paths::encode_segment(&name)?);
            let body = ctx.api.send_empty(Method::DELETE, &path).await?;
            display::print_body(ctx, &body, |_| format!("Bucket {name} is deleted."))
        }
    }
}

/// Writes the sections into the files of the other program. Sections of the same name are replaced.
async fn write_client_config(ctx: &Context<'_>, program: &Configure) -> Result<()> {
    let home = ctx.environment.home.as_deref().ok_or_else(|| Failure::new("there is no home directory; set HOME"))?;
    let (path, files): (_, &[(&str, AllowedSection)]) = match program {
        Configure::Aws => ("aws", AWS),
        Configure::Rclone => ("rclone", RCLONE),
    };
    let body = ctx.api.get(&format!("/object-storage/configure/{path}"), &[]).await?;
    let mut written = Vec::new();
    for (name, kind) in files {
        let file = ini_sections::write_section(home, kind, text_field(&body, name))?;
        written.push(format!("Wrote [{}] to {}.", kind.name, file.display()));
    }
    display::print_body(ctx, &body, |_| written.join("\n"))
}

fn render_credentials(body: &Value) -> String {
    let lines = tables::render_fields(body, CREDENTIALS);
    match output::message_of(body) {
        message if message.is_empty() => lines,
        message => format!("{message}\n{lines}"),
    }
}

const CREDENTIALS: &[Column] = &[
    ("Access Key ID:", |row| text_field(row, "access_key_id").into()),
    ("Secret Access Key:", |row| text_field(row, "secret_access_key").into()),
    ("Endpoint:", |row| text_field(row, "endpoint").into()),
    ("Region:", |row| text_field(row, "region").into()),
];

const AWS: &[(&str, AllowedSection)] = &[
    (
        "credentials_file",
        AllowedSection {
            file: ".aws/credentials",
            name: "tp",
            keys: &["aws_access_key_id", "aws_secret_access_key", "aws_session_token"],
        },
    ),
    (
        "config_file",
        AllowedSection {
            file: ".aws/config",
            name: "profile tp",
            keys: &["region", "endpoint_url", "s3", "addressing_style", "signature_version"],
        },
    ),
];

const RCLONE: &[(&str, AllowedSection)] = &[(
    "rclone_config",
    AllowedSection {
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
