//! `tarn job …`.

mod init;
mod logs;
mod pack;
mod pull;
mod push;
mod run;
mod waits;

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, line, text};
use crate::show::{self, Listing, Question, Watch};
use crate::tables::{self, Column};
use crate::waits::Progress;
use crate::{paths, prompts};

/// How long an ID is behind its `j-`.
const ID_LENGTH: usize = 12;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a file to begin with, which says what a job does
    Init {
        /// Its name, with or without .tp.toml [default: job.tp.toml, or the next that is free]
        name: Option<String>,
    },
    /// Upload the files of this directory and run a job with them on a cluster
    Push(push::Push),
    /// Run a command on a cluster of its own: create it, run, show the output, fetch the outputs, destroy it
    Run(run::Run),
    /// List jobs
    #[command(visible_alias = "ls")]
    List(Listing),
    /// Show a job
    Info {
        /// Its ID, or its name: the newest that is called so
        job: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Stop a job
    Cancel {
        /// Its ID, or its name: the newest that is called so
        job: String,
        /// Wait until it has ended
        #[arg(long)]
        wait: bool,
    },
    /// Forget a job that has ended, with its log and its outputs
    Delete {
        /// Its ID, or its name: the newest that is called so
        job: String,
    },
    /// Show what a job writes until it has ended; the same as `logs -f`
    Listen {
        /// Its ID, or its name: the newest that is called so
        job: String,
    },
    /// Show what a job wrote
    Logs {
        /// Its ID, or its name: the newest that is called so
        job: String,
        /// Go on until it has ended
        #[arg(short, long)]
        follow: bool,
    },
    /// Fetch the outputs of a job
    Pull(pull::Pull),
}

pub(crate) async fn run(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Init { name } => init::run(ctx, name.as_deref()).await,
        Command::Push(push) => push::run(ctx, push).await,
        Command::Run(run) => run::run(ctx, run).await,
        Command::List(listing) => {
            let query = listing.query(100);
            let nothing = "There are no jobs; `tarn job init` writes a file to begin with.";
            let question = Question::list("/job/list", &query, "jobs");
            show::answer(ctx, listing.watch, question, |body| tables::of(ctx, &body["jobs"], JOBS, nothing)).await
        }
        Command::Info { job, watch } => {
            let path = format!("/job/info/{}", paths::segment(&id_of(ctx, &job).await?)?);
            show::answer(ctx, watch, Question::of(&path), |body| tables::describe(&body["job_info"], FIELDS)).await
        }
        Command::Cancel { job, wait } => cancel(ctx, &job, wait).await,
        Command::Delete { job } => {
            let id = id_of(ctx, &job).await?;
            // Whoever says the ID means that one; a name may be that of another one now.
            if id != job {
                prompts::confirm(ctx, &format!("Delete job {job} ({id}) with its log and its outputs?")).await?;
            }
            let path = format!("/job/delete/{}", paths::segment(&id)?);
            let body = ctx.engine.act(Method::DELETE, &path).await?;
            show::once(ctx, &body, output::message)
        }
        Command::Listen { job } | Command::Logs { job, follow: true } => {
            logs::listen(ctx, &id_of(ctx, &job).await?).await
        }
        Command::Logs { job, follow: false } => logs::print(ctx, &id_of(ctx, &job).await?).await,
        Command::Pull(pull) => pull::run(ctx, pull).await,
    }
}

/// Waits until a job has ended, and fails unless it has done all that it should.
pub(crate) async fn ended(ctx: &Context<'_>, job: &str) -> Result<()> {
    waits::verdict(&waits::until_ended(ctx, job, Progress::hidden()).await?)
}

/// The ID of the job that somebody means by an ID or a name. Names are not unique, and the newest is meant.
async fn id_of(ctx: &Context<'_>, asked: &str) -> Result<String> {
    if asked.strip_prefix("j-").is_some_and(|rest| rest.len() == ID_LENGTH) {
        return Ok(asked.to_owned());
    }
    let query = [("include_org", "true".to_owned()), ("limit", "100".to_owned())];
    let body = ctx.engine.list("/job/list", &query, "jobs").await?;
    let found = body["jobs"].as_array().into_iter().flatten().find(|job| text(job, "name") == asked);
    let id = found.map(|job| text(job, "id").to_owned());
    id.ok_or_else(|| Failure::not_found(format!("there is no job {asked}; see `tarn job list --org`")))
}

async fn cancel(ctx: &Context<'_>, job: &str, wait: bool) -> Result<()> {
    let job = &id_of(ctx, job).await?;
    prompts::confirm(ctx, &format!("Cancel job {job}?")).await?;
    let body = ctx.engine.act(Method::POST, &format!("/job/cancel/{}", paths::segment(job)?)).await?;
    if !wait {
        return show::once(ctx, &body, output::message);
    }
    let ended = waits::until_ended(ctx, job, Progress::new(ctx)).await?;
    show::once(ctx, &ended, |body| {
        let job = &body["job_info"];
        line(&format!("Job {} is {}: {}", text(job, "id"), text(job, "status"), text(job, "explanation")))
    })
}

fn exit_code(row: &Value) -> String {
    row["exit_code"].as_u64().map(|code| code.to_string()).unwrap_or_default()
}

const JOBS: &[Column] = &[
    ("NAME", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("STATUS", |row| text(row, "status").into()),
    ("EXIT", exit_code),
    ("CLUSTER", |row| text(row, "cluster_name").into()),
    ("CREATED", |row| tables::time(row, "created_at")),
];

const FIELDS: &[Column] = &[
    ("Name", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("Status", |row| text(row, "status").into()),
    ("Explanation", |row| text(row, "explanation").into()),
    ("Exit code", exit_code),
    ("Cluster", |row| tables::named(text(row, "cluster_name"), text(row, "cluster_id"))),
    ("Type", |row| text(row, "instance_type").into()),
    ("Nodes", |row| text(row, "nodes").into()),
    ("Attempt", |row| tables::number(row, "attempt")),
    ("Commands", |row| tables::joined(&row["commands"], |each| each.as_str().unwrap_or_default().into())),
    ("Outputs", |row| tables::joined(&row["outputs"], |each| each.as_str().unwrap_or_default().into())),
    ("Log", |row| row["log_bytes"].as_u64().map(pack::size).unwrap_or_default()),
    ("Created", |row| tables::time(row, "created_at")),
    ("Started", |row| tables::time(row, "started_at")),
    ("Ended", |row| tables::time(row, "ended_at")),
];
