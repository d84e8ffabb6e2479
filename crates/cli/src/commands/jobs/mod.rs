//! `tarn job …`.

mod completion;
mod init;
mod logs;
mod pack;
mod pull;
mod push;
mod run;

use clap::Subcommand;
use http::Method;
use serde_json::Value;

use crate::commands::Context;
use crate::commands::display::{self, Listing, Query, Watch};
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::terminal::output::{self, sanitize_line, text_field};
use crate::terminal::progress::Progress;
use crate::terminal::prompts;
use crate::terminal::tables::{self, Column};

/// The length of an ID without its prefix `j-`.
const ID_LENGTH: usize = 12;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a template of a job file
    Init {
        /// The file name, with or without .tp.toml [default: job.tp.toml, or the next free name]
        name: Option<String>,
    },
    /// Upload the files of the current directory and run a job on a cluster
    Push(push::Push),
    /// Run a command on a new cluster: create it, run the command, show its log, fetch its outputs, destroy the cluster
    Run(run::Run),
    /// List jobs
    #[command(visible_alias = "ls")]
    List(Listing),
    /// Show a job
    Info {
        /// The job ID, or a name (the newest job with that name)
        job: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Stop a job
    Cancel {
        /// The job ID, or a name (the newest job with that name)
        job: String,
        /// Wait until the job has ended
        #[arg(long)]
        wait: bool,
    },
    /// Delete a job that has ended, with its log and its outputs
    Delete {
        /// The job ID, or a name (the newest job with that name)
        job: String,
    },
    /// Follow the log of a job until it has ended; the same as `logs -f`
    Listen {
        /// The job ID, or a name (the newest job with that name)
        job: String,
    },
    /// Show the log of a job
    Logs {
        /// The job ID, or a name (the newest job with that name)
        job: String,
        /// Follow the log until the job has ended
        #[arg(short, long)]
        follow: bool,
    },
    /// Fetch the outputs of a job
    Pull(pull::Pull),
}

pub(crate) async fn run_job_command(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Init { name } => init::init_job_file(ctx, name.as_deref()).await,
        Command::Push(push) => push::push_job(ctx, push).await,
        Command::Run(run) => run::run_on_new_cluster(ctx, run).await,
        Command::List(listing) => {
            let query = listing.query(100);
            let nothing = "There are no jobs; write a job file with `tarn job init`.";
            let question = Query::all_pages("/job/list", &query, "jobs");
            display::print_query(ctx, listing.watch, question, |body| {
                tables::render_list(ctx, &body["jobs"], JOBS, nothing)
            })
            .await
        }
        Command::Info { job, watch } => {
            let path = format!("/job/info/{}", paths::encode_segment(&resolve_job_id(ctx, &job).await?)?);
            display::print_query(ctx, watch, Query::item(&path), |body| {
                tables::render_fields(&body["job_info"], FIELDS)
            })
            .await
        }
        Command::Cancel { job, wait } => cancel_job(ctx, &job, wait).await,
        Command::Delete { job } => {
            let id = resolve_job_id(ctx, &job).await?;
            // An ID is unambiguous; a name may belong to a newer job by now.
            if id != job {
                prompts::confirm(ctx, &format!("Delete job {job} ({id}) with its log and its outputs?")).await?;
            }
            let path = format!("/job/delete/{}", paths::encode_segment(&id)?);
            let body = ctx.api.send_empty(Method::DELETE, &path).await?;
            display::print_body(ctx, &body, output::message_of)
        }
        Command::Listen { job } | Command::Logs { job, follow: true } => {
            logs::follow_and_report(ctx, &resolve_job_id(ctx, &job).await?).await
        }
        Command::Logs { job, follow: false } => logs::print_log(ctx, &resolve_job_id(ctx, &job).await?).await,
        Command::Pull(pull) => pull::pull_outputs(ctx, pull).await,
    }
}

/// Waits until a job has ended, and fails unless it completed.
pub(crate) async fn wait_until_successful(ctx: &Context<'_>, job: &str) -> Result<()> {
    completion::check_job_outcome(&completion::wait_for_job(ctx, job, Progress::hidden()).await?)
}

/// Resolves an ID or a name to an ID. Names are not unique; the newest job wins.
async fn resolve_job_id(ctx: &Context<'_>, asked: &str) -> Result<String> {
    if asked.strip_prefix("j-").is_some_and(|rest| rest.len() == ID_LENGTH) {
        return Ok(asked.to_owned());
    }
    let query = [("include_org", "true".to_owned()), ("limit", "100".to_owned())];
    let body = ctx.api.get_all_pages("/job/list", &query, "jobs").await?;
    let found = body["jobs"].as_array().into_iter().flatten().find(|job| text_field(job, "name") == asked);
    let id = found.map(|job| text_field(job, "id").to_owned());
    id.ok_or_else(|| Failure::not_found(format!("there is no job {asked}; list jobs with `tarn job list --org`")))
}

async fn cancel_job(ctx: &Context<'_>, job: &str, wait: bool) -> Result<()> {
    let job = &resolve_job_id(ctx, job).await?;
    prompts::confirm(ctx, &format!("Cancel job {job}?")).await?;
    let body = ctx.api.send_empty(Method::POST, &format!("/job/cancel/{}", paths::encode_segment(job)?)).await?;
    if !wait {
        return display::print_body(ctx, &body, output::message_of);
    }
    let ended = completion::wait_for_job(ctx, job, Progress::new(ctx)).await?;
    display::print_body(ctx, &ended, |body| {
        let job = &body["job_info"];
        sanitize_line(&format!(
            "Job {} is {}: {}",
            text_field(job, "id"),
            text_field(job, "status"),
            text_field(job, "explanation")
        ))
    })
}

fn exit_code_cell(row: &Value) -> String {
    row["exit_code"].as_u64().map(|code| code.to_string()).unwrap_or_default()
}

const JOBS: &[Column] = &[
    ("NAME", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("STATUS", |row| text_field(row, "status").into()),
    ("EXIT", exit_code_cell),
    ("CLUSTER", |row| text_field(row, "cluster_name").into()),
    ("CREATED", |row| tables::time_cell(row, "created_at")),
];

const FIELDS: &[Column] = &[
    ("Name", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("Status", |row| text_field(row, "status").into()),
    ("Explanation", |row| text_field(row, "explanation").into()),
    ("Exit code", exit_code_cell),
    ("Cluster", |row| tables::name_with_id(text_field(row, "cluster_name"), text_field(row, "cluster_id"))),
    ("Type", |row| text_field(row, "instance_type").into()),
    ("Nodes", |row| text_field(row, "nodes").into()),
    ("Attempt", |row| tables::number_cell(row, "attempt")),
    ("Commands", |row| tables::join_cells(&row["commands"], |each| each.as_str().unwrap_or_default().into())),
    ("Outputs", |row| tables::join_cells(&row["outputs"], |each| each.as_str().unwrap_or_default().into())),
    ("Log", |row| row["log_bytes"].as_u64().map(pack::format_size).unwrap_or_default()),
    ("Created", |row| tables::time_cell(row, "created_at")),
    ("Started", |row| tables::time_cell(row, "started_at")),
    ("Ended", |row| tables::time_cell(row, "ended_at")),
];
