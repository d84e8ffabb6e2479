//! `tarn cluster …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use tarn_api::clusters::ClusterCreateRestRequest;

use crate::accepted::{self, Wait};
use crate::attachments::{self, Volume};
use crate::commands::Context;
use crate::failure::{Failure, Result};
use crate::output::{self, line, required, text};
use crate::show::{self, Listing, Question, Watch};
use crate::tables::{self, Column};
use crate::{machines, paths, prompts, public_keys, ssh, waits};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a cluster
    Create(Create),
    /// Destroy a cluster with the disks of its machines; volumes stay
    #[command(visible_alias = "rm")]
    Destroy {
        /// Its ID or name
        cluster: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List clusters
    #[command(visible_alias = "ls")]
    List {
        /// Show their machines, too
        #[arg(long)]
        instances: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a cluster
    Info {
        /// Its ID or name
        cluster: String,
        #[command(flatten)]
        watch: Watch,
    },
    /// Change a cluster
    Edit(Edit),
    /// Attach a volume to a cluster
    Attach(Volume),
    /// Detach a volume from a cluster
    Detach(Volume),
    /// Restart the machines of a cluster
    Restart {
        /// Its ID or name
        cluster: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List the types of machines that there are
    Types,
}

#[derive(Args, Debug)]
pub struct Create {
    /// The type of its machines; `tarn cluster types` lists what there is
    instance_type: String,
    /// Your public SSH key; not needed if one is saved (see `tarn me sshkey`)
    #[arg(short = 'i', long, value_name = "PATH")]
    public_key: Option<PathBuf>,
    /// What it is called; a name is made up without it
    #[arg(long)]
    name: Option<String>,
    /// How many machines
    #[arg(short, long, value_name = "NUMBER")]
    num_nodes: Option<u32>,
    /// Refuse to destroy it until this is turned off
    #[arg(long)]
    deletion_protection: bool,
    /// The container image that the machines are started from, as `debian:12` or `ghcr.io/org/app:1.0`; `host` is the built-in one
    #[arg(long, value_name = "IMAGE")]
    container: Option<String>,
    /// How many jobs may run on it at the same time
    #[arg(long, value_name = "NUMBER")]
    jobs_parallel: Option<u32>,
    /// Log in as soon as it runs
    #[arg(long)]
    ssh: bool,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args, Debug)]
pub struct Edit {
    /// Its ID or name
    cluster: String,
    /// A new name
    #[arg(long)]
    name: Option<String>,
    /// Whether destroying it is refused
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new())]
    deletion_protection: Option<bool>,
}

pub(crate) async fn run(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Create(create) => self::create(ctx, create).await,
        Command::Destroy { cluster, wait } => {
            let path = paths::segment(&cluster)?;
            if ctx.may_ask() {
                let info = ctx.engine.get(&format!("/cluster/info/{path}"), &[]).await?;
                let what = whose(&info["cluster_info"]);
                prompts::confirm(ctx, &format!("Destroy {what} and the disks of its machines?")).await?;
            } else {
                prompts::confirm(ctx, &format!("Destroy cluster {cluster} and the disks of its machines?")).await?;
            }
            let accepted = ctx.engine.act(Method::DELETE, &format!("/cluster/{path}")).await?;
            accepted::finish(ctx, accepted, wait).await
        }
        Command::List { instances, listing } => {
            let mut query = listing.query(1000).to_vec();
            query.push(("instances", instances.to_string()));
            let question = Question::list("/cluster/list", &query, "clusters");
            show::answer(ctx, listing.watch, question, |body| list(ctx, body, listing.org, instances)).await
        }
        Command::Info { cluster, watch } => {
            let path = format!("/cluster/info/{}", paths::segment(&cluster)?);
            show::answer(ctx, watch, Question::of(&path), |body| tables::describe(&body["cluster_info"], FIELDS)).await
        }
        Command::Edit(edit) => self::edit(ctx, edit).await,
        Command::Attach(volume) => attachments::attach(ctx, volume).await,
        Command::Detach(volume) => attachments::detach(ctx, volume).await,
        Command::Restart { cluster, wait } => {
            // What runs there ends, but nothing is lost for good: a script is not held up.
            if ctx.may_ask() {
                let question = format!("Restart the machines of cluster {cluster}, and end what runs on them?");
                prompts::confirm(ctx, &question).await?;
            }
            let path = format!("/cluster/restart/{}", paths::segment(&cluster)?);
            let accepted = ctx.engine.act(Method::POST, &path).await?;
            accepted::finish(ctx, accepted, wait).await
        }
        Command::Types => {
            let body = ctx.engine.get("/cluster/types", &[]).await?;
            show::once(ctx, &body, |body| tables::of(ctx, &body["types"], TYPES, "There are no types."))
        }
    }
}

async fn create(ctx: &Context<'_>, create: Create) -> Result<()> {
    if create.ssh && ctx.options.json {
        return Err(Failure::usage("--ssh is for people and --json for programs; give one of them"));
    }
    let body = ClusterCreateRestRequest {
        instance_type: create.instance_type,
        public_keys: create
            .public_key
            .as_deref()
            .map(|path| public_keys::read(ctx, path).map(|key| vec![key]))
            .transpose()?,
        num_nodes: create.num_nodes,
        tp_cluster_name: create.name,
        container: create.container,
        deletion_protection: Some(create.deletion_protection),
        jobs_parallel: create.jobs_parallel,
        save_keys: true,
    };
    let accepted = ctx.engine.send(Method::POST, "/cluster/create", &body).await?;
    let cluster = text(&accepted, "cluster_id").to_owned();
    if !create.ssh {
        return match accepted::finish(ctx, accepted, create.wait).await {
            Err(failure) => Err(left(ctx, &cluster, failure).await),
            done => done,
        };
    }
    output::tell(text(&accepted, "message"));
    if let Err(failure) = waits::wait_for_accepted(ctx, required(&accepted, "request_id")?).await {
        return Err(left(ctx, &cluster, failure).await);
    }
    ssh::enter(ctx, &machines::find(ctx, required(&accepted, "cluster_id")?).await?, &[])
}

/// The same failure, and what it leaves: a cluster whose making failed stays with its name, until somebody destroys it.
async fn left(ctx: &Context<'_>, cluster: &str, failure: Failure) -> Failure {
    let has_failed = failure.body().is_some_and(|body| text(body, "status") == "FAILED");
    let Ok(path) = paths::segment(cluster) else { return failure };
    if !has_failed || ctx.options.json {
        return failure;
    }
    match ctx.engine.silent().get(&format!("/cluster/info/{path}"), &[]).await {
        Ok(body) if text(&body["cluster_info"], "status") == "FAILED" => {
            let name = text(&body["cluster_info"], "name");
            failure.and(&format!(
                "cluster {name} stays as FAILED and keeps its name: destroy it with `tarn cluster destroy {cluster}`"
            ))
        }
        _ => failure,
    }
}

async fn edit(ctx: &Context<'_>, edit: Edit) -> Result<()> {
    if edit.name.is_none() && edit.deletion_protection.is_none() {
        return Err(Failure::usage("nothing is to be changed; give --name or --deletion-protection"));
    }
    let body = json!({ "cluster_name": edit.name, "deletion_protection": edit.deletion_protection });
    let path = format!("/cluster/edit/{}", paths::segment(&edit.cluster)?);
    let accepted = ctx.engine.send(Method::PATCH, &path, &body).await?;
    accepted::finish(ctx, accepted, Wait::default()).await
}

/// A cluster, so that nobody takes it for another one.
fn whose(cluster: &Value) -> String {
    let (name, id, owner) = (text(cluster, "name"), text(cluster, "id"), text(cluster, "owner"));
    line(&format!("cluster {} of {owner}", tables::named(name, id)))
}

fn list(ctx: &Context<'_>, body: &Value, org: bool, instances: bool) -> String {
    let clusters = tables::of(
        ctx,
        &body["clusters"],
        if org { CLUSTERS_OF_ALL } else { CLUSTERS },
        "There are no clusters; create one with `tarn cluster create TYPE`.",
    );
    if !instances {
        return clusters;
    }
    let all = body["clusters"].as_array().into_iter().flatten();
    let machines: Vec<Value> =
        all.flat_map(|cluster| cluster["instances"].as_array().into_iter().flatten()).cloned().collect();
    format!("{clusters}\n\n{}", tables::of(ctx, &Value::Array(machines), INSTANCES, "There are no machines."))
}

const CLUSTERS: &[Column] = &[
    ("NAME", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("STATUS", |row| text(row, "status").into()),
    ("TYPE", |row| text(row, "instance_type").into()),
    ("NODES", |row| tables::number(row, "num_nodes")),
    ("EXPLANATION", |row| text(row, "explanation").into()),
];

const CLUSTERS_OF_ALL: &[Column] = &[
    CLUSTERS[0],
    CLUSTERS[1],
    CLUSTERS[2],
    CLUSTERS[3],
    CLUSTERS[4],
    ("OWNER", |row| text(row, "owner").into()),
    CLUSTERS[5],
];

const INSTANCES: &[Column] = &[
    ("MACHINE", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("STATUS", |row| text(row, "status").into()),
    ("ADDRESS", |row| text(row, "private_ip").into()),
];

const TYPES: &[Column] = &[
    ("TYPE", |row| text(row, "name").into()),
    ("CPUS", |row| tables::number(row, "cpus")),
    ("MEMORY", |row| match row["memory_bytes"].as_f64() {
        Some(bytes) => format!("{:.1} GiB", bytes / f64::from(1 << 30)),
        None => String::new(),
    }),
    ("GPUS", |row| tables::number(row, "gpus")),
    ("MODEL", |row| text(row, "gpu_model").into()),
    ("FIT NOW", |row| tables::number(row, "available")),
    ("$/H", |row| tables::number(row, "hourly_rate")),
];

const FIELDS: &[Column] = &[
    ("Name", |row| text(row, "name").into()),
    ("ID", |row| text(row, "id").into()),
    ("Status", |row| text(row, "status").into()),
    ("Explanation", |row| text(row, "explanation").into()),
    ("Type", |row| text(row, "instance_type").into()),
    ("Nodes", |row| tables::number(row, "num_nodes")),
    ("Machines", |row| {
        tables::joined(&row["instances"], |each| format!("{} {}", text(each, "id"), text(each, "status")))
    }),
    ("GPUs", |row| {
        let nodes = row["instances"].as_array().into_iter().flatten();
        let gpus = nodes.flat_map(|node| node["gpus"].as_array().into_iter().flatten());
        gpus.map(|gpu| format!("{} {}", text(gpu, "id"), text(gpu, "health"))).collect::<Vec<_>>().join(", ")
    }),
    ("Volumes", |row| tables::joined(&row["storage"], |each| each.as_str().unwrap_or_default().into())),
    ("Container", |row| text(row, "container").into()),
    ("Image", |row| text(row, "image").into()),
    ("Owner", |row| text(row, "owner").into()),
    ("Protected", tables::protected),
    ("$/h", |row| tables::number(row, "hourly_rate")),
    ("Created", |row| tables::time(row, "created_at")),
];
