//! `tarn object-storage …`: the account, its keys and its buckets. Objects are read and written with S3 clients, which
//! `configure` sets up.

use clap::Subcommand;
use http::Method;
use serde_json::Value;
use tarn_api::object_storage::S3KeyCreateRequest;

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
    /// Enable object storage and create your key
    Enable,
    /// Disable object storage and remove all its keys and buckets; refused while there are objects
    Disable {
        /// Also delete all objects
        #[arg(long)]
        force: bool,
    },
    /// Show the endpoint and your key
    Credentials,
    /// Write the endpoint and your key into the configuration of another program
    #[command(subcommand)]
    Configure(Configure),
    /// Manage your S3 keys
    #[command(subcommand)]
    Keys(Keys),
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
pub enum Keys {
    /// List your keys; an administrator of the organization sees those of all members
    #[command(visible_alias = "ls")]
    List {
        /// Include keys that no longer work
        #[arg(long)]
        all: bool,
    },
    /// Create another key; you can have two
    Create {
        /// A name for the key
        #[arg(long)]
        name: Option<String>,
    },
    /// End a key at once
    Revoke {
        /// The access key id
        key_id: String,
    },
    /// End the key that all members of the organization shared; for its administrators
    RetireLegacy,
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
        Command::Keys(keys) => run_keys_command(ctx, keys).await,
        Command::Bucket(bucket) => run_bucket_command(ctx, bucket).await,
        Command::Usage => {
            let body = ctx.api.get("/object-storage/usage", &[]).await?;
            display::print_body(ctx, &body, output::message_of)
        }
    }
}

async fn run_keys_command(ctx: &Context<'_>, command: Keys) -> Result<()> {
    match command {
        Keys::List { all } => {
            let query = [("limit", "1000".to_owned()), ("all", all.to_string())];
            let body = ctx.api.get_all_pages("/object-storage/keys", &query, "keys").await?;
            display::print_body(ctx, &body, |body| {
                tables::render_list(ctx, &body["keys"], KEYS, "You have no S3 keys.")
            })
        }
        Keys::Create { name } => {
            let body = S3KeyCreateRequest { name };
            let made = ctx.api.send_json(Method::POST, "/object-storage/keys/create", &body).await?;
            display::print_body(ctx, &made, render_credentials)
        }
        Keys::Revoke { key_id } => {
            let path = format!("/object-storage/keys/revoke/{}", paths::encode_segment(&key_id)?);
            let body = ctx.api.send_empty(Method::DELETE, &path).await?;
            display::print_body(ctx, &body, output::message_of)
        }
        Keys::RetireLegacy => {
            let body = ctx.api.send_empty(Method::POST, "/object-storage/keys/retire-legacy").await?;
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

const KEYS: &[Column] = &[
    ("ID", |row| text_field(row, "access_key_id").into()),
    ("NAME", |row| text_field(row, "name").into()),
    ("USER", |row| text_field(row, "email").into()),
    ("STATUS", |row| text_field(row, "status").into()),
    ("LAST USED", |row| tables::time_cell(row, "last_used_at")),
    ("ENDS", |row| tables::time_cell(row, "ends_at")),
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
