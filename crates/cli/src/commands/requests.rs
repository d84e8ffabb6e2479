//! `tarn request …`: the durable requests of the caller.

use clap::Subcommand;

use crate::commands::Context;
use crate::commands::display::{self, Listing, Query, Watch};
use crate::commands::request_wait;
use crate::failure::Result;
use crate::files::paths;
use crate::terminal::output::{self, text_field};
use crate::terminal::tables::{self, Column};
use crate::transport::backoff::Backoff;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List requests, newest first
    #[command(visible_alias = "ls")]
    List(Listing),
    /// Show a request
    Info {
        /// The request ID
        request: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Wait until a request has ended
    Wait {
        /// The request ID
        request: String,
    },
}

pub(crate) async fn run_request_command(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::List(listing) => {
            let query = listing.query(100);
            let nothing = "There are no requests.";
            // The newest page is enough; older requests are in the event log.
            let question = Query::first_page("/request/list", &query);
            display::print_query(ctx, listing.watch, question, |body| {
                tables::render_list(ctx, &body["requests"], REQUESTS, nothing)
            })
            .await
        }
        Command::Info { request, watch } => {
            let path = format!("/request/info/{}", paths::encode_segment(&request)?);
            display::print_query(ctx, watch, Query::item(&path), |body| tables::render_fields(body, FIELDS)).await
        }
        Command::Wait { request } => {
            let ended = request_wait::wait_for_request(ctx, &request, Backoff::default()).await?;
            display::print_body(ctx, &ended, output::message_of)
        }
    }
}

const REQUESTS: &[Column] = &[
    ("ID", |row| text_field(row, "request_id").into()),
    ("TYPE", |row| text_field(row, "request_type").into()),
    ("STATUS", |row| text_field(row, "status").into()),
    ("ABOUT", |row| text_field(row, "object_id").into()),
    ("CREATED", |row| tables::time_cell(row, "created_at")),
    ("MESSAGE", |row| text_field(row, "message").into()),
];

const FIELDS: &[Column] = &[
    ("ID", |row| text_field(row, "request_id").into()),
    ("Type", |row| text_field(row, "request_type").into()),
    ("Status", |row| text_field(row, "status").into()),
    ("About", |row| text_field(row, "object_id").into()),
    ("Message", |row| text_field(row, "message").into()),
    ("Created", |row| tables::time_cell(row, "created_at")),
    ("Ended", |row| tables::time_cell(row, "ended_at")),
];
