//! The part of `tarn admin …` that uses the API: users, keys, grants, limits, the host and the event log.

mod host;
mod limits;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::Value;
use tarn_api::admin::{AdminGrantRequest, AdminKeyCreateRequest, AdminUserCreateRequest};

use crate::commands::Context;
use crate::commands::display;
use crate::failure::Result;
use crate::files::paths;
use crate::terminal::output::{self, sanitize_line, text_field};
use crate::terminal::tables::{self, Column};
use limits::Limits;

/// The commands of administrators.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Manage the users of this engine
    #[command(subcommand)]
    User(User),
    /// Show organizations
    #[command(subcommand)]
    Org(Org),
    /// Add balance to a user or an organization, or take it back
    Grant(Grant),
    /// Manage the limits of organizations and users
    #[command(subcommand)]
    Limits(Limits),
    /// Show the capacity of the host, how much of it is in use, and whether it accepts new clusters
    Host(host::Host),
    /// Manage the GPUs of the host
    #[command(subcommand)]
    Gpu(host::Gpu),
    /// List events, oldest first
    Events {
        /// Only events after this number
        #[arg(long, default_value_t = 0)]
        after: i64,
    },
}

#[derive(Debug, Subcommand)]
pub enum User {
    /// Create a user and an API key, which is shown only once
    Create {
        /// The e-mail address
        email: String,
        /// The organization; created if it does not exist
        #[arg(long, value_name = "NAME")]
        org: Option<String>,
    },
    /// List users
    #[command(visible_alias = "ls")]
    List,
    /// Disable a user: no key of the user is accepted any more
    Disable {
        /// The user ID
        user: String,
    },
    /// Enable a disabled user again
    Enable {
        /// The user ID
        user: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Org {
    /// Show your own organization and its members
    Info,
}

/// The commands for API keys of users.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Create another API key for a user, which is shown only once
    Create {
        /// The user ID
        user: String,
    },
    /// List keys, without their secrets
    #[command(visible_alias = "ls")]
    List {
        /// Only the keys of this user
        #[arg(long, value_name = "ID")]
        user: Option<String>,
    },
    /// Revoke a key
    Revoke {
        /// The key ID
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
    /// The reason, for the record
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

pub(crate) async fn run_admin_command(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::User(user) => run_user_command(ctx, user).await,
        Command::Org(Org::Info) => {
            let body = ctx.api.get("/user/organization/info", &[]).await?;
            display::print_body(ctx, &body, output::message_of)
        }
        Command::Grant(Grant { to, amount, description }) => {
            let body = AdminGrantRequest { to, amount, description };
            let granted = ctx.api.send_json(Method::POST, "/admin/grant", &body).await?;
            display::print_body(ctx, &granted, output::message_of)
        }
        Command::Limits(limits) => limits::run_limits_command(ctx, limits).await,
        Command::Host(command) => host::run_host_command(ctx, command).await,
        Command::Gpu(command) => host::run_gpu_command(ctx, command).await,
        Command::Events { after } => {
            let body =
                ctx.api.get("/admin/event/list", &[("after", after.to_string()), ("limit", "1000".into())]).await?;
            display::print_body(ctx, &body, |body| {
                tables::render_list(ctx, &body["events"], EVENTS, "There are no events.")
            })
        }
    }
}

async fn run_user_command(ctx: &Context<'_>, user: User) -> Result<()> {
    match user {
        User::Create { email, org } => {
            let body = AdminUserCreateRequest { email, org_name: org };
            let made = ctx.api.send_json(Method::POST, "/admin/user/create", &body).await?;
            display::print_body(ctx, &made, render_with_key)
        }
        User::List => {
            let body = ctx.api.get_all_pages("/admin/user/list", &[("limit", "1000".into())], "users").await?;
            display::print_body(ctx, &body, |body| {
                tables::render_list(ctx, &body["users"], USERS, "There are no users.")
            })
        }
        User::Disable { user } => {
            post_action(ctx, &format!("/admin/user/disable/{}", paths::encode_segment(&user)?)).await
        }
        User::Enable { user } => {
            post_action(ctx, &format!("/admin/user/enable/{}", paths::encode_segment(&user)?)).await
        }
    }
}

/// Runs `tarn admin key …`.
pub(crate) async fn run_key_command(ctx: &Context<'_>, key: Key) -> Result<()> {
    match key {
        Key::Create { user } => {
            let body = AdminKeyCreateRequest { user_id: user };
            let made = ctx.api.send_json(Method::POST, "/admin/key/create", &body).await?;
            display::print_body(ctx, &made, render_with_key)
        }
        Key::List { user } => {
            let mut query = vec![("limit", "1000".to_owned())];
            query.extend(user.map(|user| ("user_id", user)));
            let body = ctx.api.get_all_pages("/admin/key/list", &query, "keys").await?;
            display::print_body(ctx, &body, |body| tables::render_list(ctx, &body["keys"], KEYS, "There are no keys."))
        }
        Key::Revoke { key } => {
            let body = ctx
                .api
                .send_empty(Method::DELETE, &format!("/admin/key/revoke/{}", paths::encode_segment(&key)?))
                .await?;
            display::print_body(ctx, &body, output::message_of)
        }
    }
}

async fn post_action(ctx: &Context<'_>, path: &str) -> Result<()> {
    let body = ctx.api.send_empty(Method::POST, path).await?;
    display::print_body(ctx, &body, output::message_of)
}

/// The message and the new API key, which is shown only once.
fn render_with_key(made: &Value) -> String {
    format!("{}\nAPI key: {}", output::message_of(made), sanitize_line(text_field(made, "api_key")))
}

const USERS: &[Column] = &[
    ("E-MAIL", |row| text_field(row, "email").into()),
    ("ID", |row| text_field(row, "user_id").into()),
    ("ORGANIZATION", |row| text_field(row, "org_name").into()),
    ("BALANCE", |row| row["balance"].as_f64().map(|balance| format!("${balance:.2}")).unwrap_or_default()),
    ("DISABLED", |row| if row["disabled"] == Value::Bool(true) { "yes".into() } else { String::new() }),
    ("CREATED", |row| tables::time_cell(row, "created_at")),
];

const KEYS: &[Column] = &[
    ("ID", |row| text_field(row, "key_id").into()),
    ("USER", |row| text_field(row, "user_id").into()),
    ("CREATED", |row| tables::time_cell(row, "created_at")),
    ("LAST USED", |row| tables::time_cell(row, "last_used_at")),
    ("REVOKED", |row| tables::time_cell(row, "revoked_at")),
];

const EVENTS: &[Column] = &[
    ("NUMBER", |row| tables::number_cell(row, "number")),
    ("AT", |row| tables::time_cell(row, "at")),
    ("WHO", |row| text_field(row, "actor").into()),
    ("WHAT", |row| text_field(row, "verb").into()),
    ("ABOUT", |row| text_field(row, "object").into()),
];
