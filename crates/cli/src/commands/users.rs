//! `tarn me …`: the account of the caller, saved SSH keys and preferences.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tarn_api::ssh_keys::SSHKeyCreateRequest;

use crate::commands::Context;
use crate::commands::display;
use crate::commands::key_proofs;
use crate::failure::Result;
use crate::files::paths;
use crate::files::public_keys;
use crate::terminal::output::{self, text_field};
use crate::terminal::tables::{self, Column};

#[derive(Args, Debug)]
pub struct Me {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Manage the SSH keys that open your clusters and those of your organization
    #[command(subcommand)]
    Sshkey(Key),
    /// Show your notification preferences
    Preferences,
}

#[derive(Debug, Subcommand)]
enum Key {
    /// Save a public key
    Add {
        /// The file with the public key, such as ~/.ssh/id_ed25519.pub
        path: PathBuf,
        /// A name for the key
        #[arg(long)]
        name: Option<String>,
    },
    /// List saved keys
    #[command(visible_alias = "ls")]
    List {
        /// Include those of the whole organization
        #[arg(long, alias = "organization")]
        org: bool,
    },
    /// Remove a saved key
    #[command(visible_alias = "rm")]
    Remove {
        /// The key ID
        key: String,
    },
    /// Prove that a saved key is yours, with a signature by `ssh-keygen`
    ///
    /// The private key never leaves your computer. This is needed when another organization has saved your public key:
    /// afterwards the names of your clusters work again.
    Prove {
        /// The file of the private key, or of the public key if an SSH agent has the private key
        path: PathBuf,
    },
}

pub(crate) async fn run_me_command(ctx: &Context<'_>, me: Me) -> Result<()> {
    match me.command {
        None => {
            let body = ctx.api.get("/user/info", &[]).await?;
            display::print_body(ctx, &body, |body| tables::render_fields(body, FIELDS))
        }
        Some(Command::Preferences) => {
            let body = ctx.api.get("/user/preferences", &[]).await?;
            display::print_body(ctx, &body, |body| tables::render_fields(body, PREFERENCES))
        }
        Some(Command::Sshkey(Key::Add { path, name })) => {
            let body = SSHKeyCreateRequest { public_key: public_keys::read_public_key(ctx, &path)?, name };
            let saved = ctx.api.send_json(Method::POST, "/user/ssh-key/add", &body).await?;
            display::print_body(ctx, &saved, output::message_of)
        }
        Some(Command::Sshkey(Key::List { org })) => {
            let body = ctx.api.get("/user/ssh-key/list", &[("include_org", org.to_string())]).await?;
            let nothing = "There are no saved keys; save one with `tarn me sshkey add PATH`.";
            display::print_body(ctx, &body, |body| tables::render_list(ctx, &body["keys"], KEYS, nothing))
        }
        Some(Command::Sshkey(Key::Remove { key })) => {
            let path = format!("/user/ssh-key/remove/{}", paths::encode_segment(&key)?);
            let removed = ctx.api.send_empty(Method::DELETE, &path).await?;
            display::print_body(ctx, &removed, output::message_of)
        }
        Some(Command::Sshkey(Key::Prove { path })) => {
            let proven = key_proofs::prove_key(ctx, &path).await?;
            display::print_body(ctx, &proven, output::message_of)
        }
    }
}

/// Dollars with cents, or with more digits if the amount has them.
fn format_dollars(value: &Value) -> String {
    match value.as_f64().map(|value| (value, format!("{value:.2}"))) {
        Some((value, cents)) if cents.parse() == Ok(value) => format!("${cents}"),
        Some((value, _)) => format!("${value}"),
        None => String::new(),
    }
}

const FIELDS: &[Column] = &[
    ("E-mail", |row| text_field(row, "email").into()),
    ("User", |row| text_field(row, "user_id").into()),
    ("Organization", |row| match text_field(row, "org_name") {
        "" => String::new(),
        name => tables::name_with_id(name, text_field(row, "org_id")),
    }),
    ("Balance", |row| format_dollars(&row["balance"])),
    ("Cost per hour", |row| format_dollars(&row["hourly_rate"])),
    ("Clusters", |row| tables::number_cell(row, "clusters")),
    ("Volumes", |row| tables::number_cell(row, "volumes")),
];

const PREFERENCES: &[Column] = &[
    ("E-mail when a cluster is created", |row| tables::yes_or_no_cell(row, "notify_email_cluster_create")),
    ("E-mail when a cluster is destroyed", |row| tables::yes_or_no_cell(row, "notify_email_cluster_destroy")),
    ("Warning below", |row| format_dollars(&row["balance_warning_threshold"])),
    ("Automatic reload", |row| tables::yes_or_no_cell(row, "autopay_enabled")),
    ("Reload below", |row| format_dollars(&row["autopay_reload_threshold"])),
];

const KEYS: &[Column] = &[
    ("NAME", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("FINGERPRINT", |row| text_field(row, "fingerprint").into()),
    ("CREATED", |row| tables::time_cell(row, "created_at")),
];
