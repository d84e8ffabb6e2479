//! `tarn me …`: who one is, the saved SSH keys and what one wants to be told.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tarn_api::ssh_keys::SSHKeyCreateRequest;

use crate::commands::Context;
use crate::failure::Result;
use crate::output::{self, text};
use crate::tables::{self, Column};
use crate::{paths, public_keys, show};

#[derive(Args, Debug)]
pub struct Me {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// SSH keys that open your clusters, and those of your organization
    #[command(subcommand)]
    Sshkey(Key),
    /// What you want to be told
    Preferences,
}

#[derive(Debug, Subcommand)]
enum Key {
    /// Save a public key
    Add {
        /// The file of the public key, such as ~/.ssh/id_ed25519.pub
        path: PathBuf,
        /// What to call it
        #[arg(long)]
        name: Option<String>,
    },
    /// List saved keys
    #[command(visible_alias = "ls")]
    List {
        /// Those of the whole organization
        #[arg(long, alias = "organization")]
        org: bool,
    },
    /// Forget a saved key
    #[command(visible_alias = "rm")]
    Remove {
        /// Its ID
        key: String,
    },
}

pub(crate) async fn run(ctx: &Context<'_>, me: Me) -> Result<()> {
    match me.command {
        None => {
            let body = ctx.engine.get("/user/info", &[]).await?;
            show::once(ctx, &body, |body| tables::describe(body, FIELDS))
        }
        Some(Command::Preferences) => {
            let body = ctx.engine.get("/user/preferences", &[]).await?;
            show::once(ctx, &body, |body| tables::describe(body, PREFERENCES))
        }
        Some(Command::Sshkey(Key::Add { path, name })) => {
            let body = SSHKeyCreateRequest { public_key: public_keys::read(ctx, &path)?, name };
            let saved = ctx.engine.send(Method::POST, "/user/ssh-key/add", &body).await?;
            show::once(ctx, &saved, output::message)
        }
        Some(Command::Sshkey(Key::List { org })) => {
            let body = ctx.engine.get("/user/ssh-key/list", &[("include_org", org.to_string())]).await?;
            let nothing = "There are no saved keys; save one with `tarn me sshkey add PATH`.";
            show::once(ctx, &body, |body| tables::of(ctx, &body["keys"], KEYS, nothing))
        }
        Some(Command::Sshkey(Key::Remove { key })) => {
            let path = format!("/user/ssh-key/remove/{}", paths::segment(&key)?);
            let removed = ctx.engine.act(Method::DELETE, &path).await?;
            show::once(ctx, &removed, output::message)
        }
    }
}

/// Cents, and what is smaller where there is such.
fn dollars(value: &Value) -> String {
    match value.as_f64().map(|value| (value, format!("{value:.2}"))) {
        Some((value, cents)) if cents.parse() == Ok(value) => format!("${cents}"),
        Some((value, _)) => format!("${value}"),
        None => String::new(),
    }
}

const FIELDS: &[Column] = &[
    ("E-mail", |row| text(row, "email").into()),
    ("User", |row| text(row, "user_id").into()),
    ("Organization", |row| match text(row, "org_name") {
        "" => String::new(),
        name => tables::named(name, text(row, "org_id")),
    }),
    ("Balance", |row| dollars(&row["balance"])),
    ("Costs per hour", |row| dollars(&row["hourly_rate"])),
    ("Clusters", |row| tables::number(row, "clusters")),
    ("Volumes", |row| tables::number(row, "volumes")),
];

const PREFERENCES: &[Column] = &[
    ("Told when a cluster is created", |row| tables::yes_or_no(row, "notify_email_cluster_create")),
    ("Told when a cluster is destroyed", |row| tables::yes_or_no(row, "notify_email_cluster_destroy")),
    ("Warned below", |row| dollars(&row["balance_warning_threshold"])),
    ("Balance reloads by itself", |row| tables::yes_or_no(row, "autopay_enabled")),
    ("Reloaded below", |row| dollars(&row["autopay_reload_threshold"])),
];

const KEYS: &[Column] = &[
    ("NAME", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("FINGERPRINT", |row| text(row, "fingerprint").into()),
    ("CREATED", |row| tables::time(row, "created_at")),
];
