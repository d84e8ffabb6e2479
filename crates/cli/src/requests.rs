//! `tarn request …`: what was accepted, and how far it is.

use clap::Subcommand;

use crate::commands::Context;
use crate::failure::Result;
use crate::output::{self, text};
use crate::patience::Patience;
use crate::show::{self, Listing, Question, Watch};
use crate::tables::{self, Column};
use crate::{paths, waits};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List requests, the newest first
    #[command(visible_alias = "ls")]
    List(Listing),
    /// Show a request
    Info {
        /// Its ID
        request: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Wait for the end of a request
    Wait {
        /// Its ID
        request: String,
    },
}

pub(crate) async fn run(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::List(listing) => {
            let query = listing.query(100);
            let nothing = "There are no requests.";
            // What was long ago is in the events; here the newest are enough, and a page has them.
            let question = Question::part("/request/list", &query);
            show::answer(ctx, listing.watch, question, |body| tables::of(ctx, &body["requests"], REQUESTS, nothing))
                .await
        }
        Command::Info { request, watch } => {
            let path = format!("/request/info/{}", paths::segment(&request)?);
            show::answer(ctx, watch, Question::of(&path), |body| tables::describe(body, FIELDS)).await
        }
        Command::Wait { request } => {
            let ended = waits::wait(ctx, &request, Patience::default()).await?;
            show::once(ctx, &ended, output::message)
        }
    }
}

const REQUESTS: &[Column] = &[
    ("ID", |row| text(row, "request_id").into()),
    ("TYPE", |row| text(row, "request_type").into()),
    ("STATUS", |row| text(row, "status").into()),
    ("ABOUT", |row| text(row, "object_id").into()),
    ("CREATED", |row| tables::time(row, "created_at")),
    ("MESSAGE", |row| text(row, "message").into()),
];

const FIELDS: &[Column] = &[
    ("ID", |row| text(row, "request_id").into()),
    ("Type", |row| text(row, "request_type").into()),
    ("Status", |row| text(row, "status").into()),
    ("About", |row| text(row, "object_id").into()),
    ("Message", |row| text(row, "message").into()),
    ("Created", |row| tables::time(row, "created_at")),
    ("Ended", |row| tables::time(row, "ended_at")),
];
