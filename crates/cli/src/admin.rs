//! `tarn admin …`, as far as the API does it: users, keys, grants, the host and the event log.

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tarn_api::admin::{AdminGrantRequest, AdminKeyCreateRequest, AdminUserCreateRequest};

use crate::commands::Context;
use crate::failure::Result;
use crate::limits::{self, Limits};
use crate::output::{self, line, text};
use crate::tables::{self, Column};
use crate::{host, paths, show};

/// What administrators do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Users of this engine
    #[command(subcommand)]
    User(User),
    /// Organizations
    #[command(subcommand)]
    Org(Org),
    /// Give a user or an organization balance, or take it back
    Grant(Grant),
    /// What organizations and users may have
    #[command(subcommand)]
    Limits(Limits),
    /// The host: what it has, what is held of it, and whether it takes on anything new
    Host(host::Host),
    /// GPUs of the host
    #[command(subcommand)]
    Gpu(host::Gpu),
    /// Who did what, the oldest first
    Events {
        /// Those after this number
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
}

#[derive(Debug, Subcommand)]
pub enum User {
    /// Make a user, and the API key, which is shown this once
    Create {
        /// The e-mail address
        email: String,
        /// The organization; one that is not there is made
        #[arg(long, value_name = "NAME")]
        org: Option<String>,
    },
    /// List users
    #[command(visible_alias = "ls")]
    List,
    /// Shut a user out
    Disable {
        /// The user's ID
        user: String,
    },
    /// Let a user in again
    Enable {
        /// The user's ID
        user: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Org {
    /// Show your own organization and its members
    Info,
}

/// API keys of users.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make another key for a user; it is shown this once
    Create {
        /// The user's ID
        user: String,
    },
    /// List keys, without their secrets
    #[command(visible_alias = "ls")]
    List {
        /// Those of one user
        #[arg(long, value_name = "ID")]
        user: Option<String>,
    },
    /// End a key
    Revoke {
        /// The key's ID
        key: String,
    },
}

#[derive(Args, Debug)]
pub struct Grant {
    /// The ID of a user or an organization
    to: String,
    /// US dollars; a negative amount takes balance back
    #[arg(allow_negative_numbers = true)]
    amount: f64,
    /// Why
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

pub(crate) async fn run(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::User(user) => self::user(ctx, user).await,
        Command::Org(Org::Info) => {
            let body = ctx.engine.get("/user/organization/info", &[]).await?;
            show::once(ctx, &body, output::message)
        }
        Command::Grant(Grant { to, amount, description }) => {
            let body = AdminGrantRequest { to, amount, description };
            let granted = ctx.engine.send(Method::POST, "/admin/grant", &body).await?;
            show::once(ctx, &granted, output::message)
        }
        Command::Limits(limits) => limits::run(ctx, limits).await,
        Command::Host(command) => host::run(ctx, command).await,
        Command::Gpu(command) => host::gpu(ctx, command).await,
        Command::Events { after } => {
            let body =
                ctx.engine.get("/admin/event/list", &[("after", after.to_string()), ("limit", "1000".into())]).await?;
            show::once(ctx, &body, |body| tables::of(ctx, &body["events"], EVENTS, "There are no events."))
        }
    }
}

async fn user(ctx: &Context<'_>, user: User) -> Result<()> {
    match user {
        User::Create { email, org } => {
            let body = AdminUserCreateRequest { email, org_name: org };
            let made = ctx.engine.send(Method::POST, "/admin/user/create", &body).await?;
            show::once(ctx, &made, with_key)
        }
        User::List => {
            let body = ctx.engine.list("/admin/user/list", &[("limit", "1000".into())], "users").await?;
            show::once(ctx, &body, |body| tables::of(ctx, &body["users"], USERS, "There are no users."))
        }
        User::Disable { user } => act(ctx, &format!("/admin/user/disable/{}", paths::segment(&user)?)).await,
        User::Enable { user } => act(ctx, &format!("/admin/user/enable/{}", paths::segment(&user)?)).await,
    }
}

/// What is done about keys.
pub(crate) async fn key(ctx: &Context<'_>, key: Key) -> Result<()> {
    match key {
        Key::Create { user } => {
            let body = AdminKeyCreateRequest { user_id: user };
            let made = ctx.engine.send(Method::POST, "/admin/key/create", &body).await?;
            show::once(ctx, &made, with_key)
        }
        Key::List { user } => {
            let mut query = vec![("limit", "1000".to_owned())];
            query.extend(user.map(|user| ("user_id", user)));
            let body = ctx.engine.list("/admin/key/list", &query, "keys").await?;
            show::once(ctx, &body, |body| tables::of(ctx, &body["keys"], KEYS, "There are no keys."))
        }
        Key::Revoke { key } => {
            let body = ctx.engine.act(Method::DELETE, &format!("/admin/key/revoke/{}", paths::segment(&key)?)).await?;
            show::once(ctx, &body, output::message)
        }
    }
}

async fn act(ctx: &Context<'_>, path: &str) -> Result<()> {
    let body = ctx.engine.act(Method::POST, path).await?;
    show::once(ctx, &body, output::message)
}

/// What was made, and the key, which is shown this once.
fn with_key(made: &Value) -> String {
    format!("{}\nAPI key: {}", output::message(made), line(text(made, "api_key")))
}

const USERS: &[Column] = &[
    ("E-MAIL", |row| text(row, "email").into()),
    ("ID", |row| text(row, "user_id").into()),
    ("ORGANIZATION", |row| text(row, "org_name").into()),
    ("BALANCE", |row| row["balance"].as_f64().map(|balance| format!("${balance:.2}")).unwrap_or_default()),
    ("DISABLED", |row| if row["disabled"] == Value::Bool(true) { "yes".into() } else { String::new() }),
    ("CREATED", |row| tables::time(row, "created_at")),
];

const KEYS: &[Column] = &[
    ("ID", |row| text(row, "key_id").into()),
    ("USER", |row| text(row, "user_id").into()),
    ("CREATED", |row| tables::time(row, "created_at")),
    ("REVOKED", |row| tables::time(row, "revoked_at")),
];

const EVENTS: &[Column] = &[
    ("NUMBER", |row| tables::number(row, "number")),
    ("AT", |row| tables::time(row, "at")),
    ("WHO", |row| text(row, "actor").into()),
    ("WHAT", |row| text(row, "verb").into()),
    ("ABOUT", |row| text(row, "object").into()),
];
