//! `tarn cluster …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use tarn_api::clusters::ClusterCreateRestRequest;

use crate::commands::Context;
use crate::commands::accepted::{self, Wait};
use crate::commands::attachments::{self, Volume};
use crate::commands::display::{self, Listing, Query, Watch};
use crate::commands::request_wait;
use crate::commands::ssh;
use crate::commands::ssh::instances;
use crate::failure::{Failure, Result};
use crate::files::paths;
use crate::files::public_keys;
use crate::terminal::output::{self, required_field, sanitize_line, text_field};
use crate::terminal::prompts;
use crate::terminal::tables::{self, Column};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a cluster
    Create(Create),
    /// Destroy a cluster and the disks of its instances; volumes stay
    #[command(visible_alias = "rm")]
    Destroy {
        /// The cluster ID or name
        cluster: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List clusters
    #[command(visible_alias = "ls")]
    List {
        /// Also list the instances
        #[arg(long)]
        instances: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a cluster
    Info {
        /// The cluster ID or name
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
    /// Restart the instances of a cluster
    Restart {
        /// The cluster ID or name
        cluster: String,
        #[command(flatten)]
        wait: Wait,
    },
    /// List the instance types
    Types,
}

#[derive(Args, Debug)]
pub struct Create {
    /// The instance type; `tarn cluster types` lists them
    instance_type: String,
    /// The file with your public SSH key; not needed if a key is saved (see `tarn me sshkey`)
    #[arg(short = 'i', long, value_name = "PATH")]
    public_key: Option<PathBuf>,
    /// A name; chosen by the engine when absent
    #[arg(long)]
    name: Option<String>,
    /// The number of instances
    #[arg(short, long, value_name = "NUMBER")]
    num_nodes: Option<u32>,
    /// Refuse to destroy the cluster until the protection is turned off
    #[arg(long)]
    deletion_protection: bool,
    /// The container image of the instances, such as `debian:12` or `ghcr.io/org/app:1.0`; `host` is the built-in image
    #[arg(long, value_name = "IMAGE")]
    container: Option<String>,
    /// The number of jobs that may run on the cluster at the same time
    #[arg(long, value_name = "NUMBER")]
    jobs_parallel: Option<u32>,
    /// Log in as soon as the cluster runs
    #[arg(long)]
    ssh: bool,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args, Debug)]
pub struct Edit {
    /// The cluster ID or name
    cluster: String,
    /// A new name
    #[arg(long)]
    name: Option<String>,
    /// Whether the engine refuses to destroy the cluster
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set, value_parser = clap::builder::BoolishValueParser::new())]
    deletion_protection: Option<bool>,
}

pub(crate) async fn run_cluster_command(ctx: &Context<'_>, command: Command) -> Result<()> {
    match command {
        Command::Create(create) => create_cluster(ctx, create).await,
        Command::Destroy { cluster, wait } => {
            let path = paths::encode_segment(&cluster)?;
            if ctx.may_ask() {
                let info = ctx.api.get(&format!("/cluster/info/{path}"), &[]).await?;
                let what = cluster_with_owner(&info["cluster_info"]);
                prompts::confirm(ctx, &format!("Destroy {what} and the disks of its instances?")).await?;
            } else {
                prompts::confirm(ctx, &format!("Destroy cluster {cluster} and the disks of its instances?")).await?;
            }
            let accepted = ctx.api.send_empty(Method::DELETE, &format!("/cluster/{path}")).await?;
            accepted::report_accepted(ctx, accepted, wait).await
        }
        Command::List { instances, listing } => {
            let mut query = listing.query(1000).to_vec();
            query.push(("instances", instances.to_string()));
            let question = Query::all_pages("/cluster/list", &query, "clusters");
            display::print_query(ctx, listing.watch, question, |body| {
                render_clusters(ctx, body, listing.org, instances)
            })
            .await
        }
        Command::Info { cluster, watch } => {
            let path = format!("/cluster/info/{}", paths::encode_segment(&cluster)?);
            display::print_query(ctx, watch, Query::item(&path), |body| {
                tables::render_fields(&body["cluster_info"], FIELDS)
            })
            .await
        }
        Command::Edit(edit) => edit_cluster(ctx, edit).await,
        Command::Attach(volume) => attachments::attach_volume(ctx, volume).await,
        Command::Detach(volume) => attachments::detach_volume(ctx, volume).await,
        Command::Restart { cluster, wait } => {
            // Processes end but no data is lost, so a script is not asked to confirm.
            if ctx.may_ask() {
                let question = format!("Restart the instances of cluster {cluster} and end all processes on them?");
                prompts::confirm(ctx, &question).await?;
            }
            let path = format!("/cluster/restart/{}", paths::encode_segment(&cluster)?);
            let accepted = ctx.api.send_empty(Method::POST, &path).await?;
            accepted::report_accepted(ctx, accepted, wait).await
        }
        Command::Types => {
            let body = ctx.api.get("/cluster/types", &[]).await?;
            display::print_body(ctx, &body, |body| {
                tables::render_list(ctx, &body["types"], TYPES, "There are no instance types.")
            })
        }
    }
}

async fn create_cluster(ctx: &Context<'_>, create: Create) -> Result<()> {
    if create.ssh && ctx.options.json {
        return Err(Failure::usage("--ssh and --json cannot be combined; give one of them"));
    }
    let body = ClusterCreateRestRequest {
        instance_type: create.instance_type,
        public_keys: create
            .public_key
            .as_deref()
            .map(|path| public_keys::read_public_key(ctx, path).map(|key| vec![key]))
            .transpose()?,
        num_nodes: create.num_nodes,
        tp_cluster_name: create.name,
        container: create.container,
        deletion_protection: Some(create.deletion_protection),
        jobs_parallel: create.jobs_parallel,
        save_keys: true,
    };
    let accepted = ctx.api.send_json(Method::POST, "/cluster/create", &body).await?;
    let cluster = text_field(&accepted, "cluster_id").to_owned();
    if !create.ssh {
        return match accepted::report_accepted(ctx, accepted, create.wait).await {
            Err(failure) => Err(with_failed_cluster_hint(ctx, &cluster, failure).await),
            done => done,
        };
    }
    output::print_note(text_field(&accepted, "message"));
    if let Err(failure) = request_wait::wait_for_accepted_request(ctx, required_field(&accepted, "request_id")?).await {
        return Err(with_failed_cluster_hint(ctx, &cluster, failure).await);
    }
    ssh::exec_ssh(ctx, &instances::find_ssh_target(ctx, required_field(&accepted, "cluster_id")?).await?, &[])
}

/// Adds a hint to the failure of a cluster creation: the failed cluster keeps its name until the user destroys it.
async fn with_failed_cluster_hint(ctx: &Context<'_>, cluster: &str, failure: Failure) -> Failure {
    let has_failed = failure.body().is_some_and(|body| text_field(body, "status") == "FAILED");
    let Ok(path) = paths::encode_segment(cluster) else { return failure };
    if !has_failed || ctx.options.json {
        return failure;
    }
    match ctx.api.without_progress().get(&format!("/cluster/info/{path}"), &[]).await {
        Ok(body) if text_field(&body["cluster_info"], "status") == "FAILED" => {
            let name = text_field(&body["cluster_info"], "name");
            failure.with_addition(&format!(
                "cluster {name} is FAILED and keeps its name; destroy it with `tarn cluster destroy {cluster}`"
            ))
        }
        _ => failure,
    }
}

async fn edit_cluster(ctx: &Context<'_>, edit: Edit) -> Result<()> {
    if edit.name.is_none() && edit.deletion_protection.is_none() {
        return Err(Failure::usage("nothing to change; give --name or --deletion-protection"));
    }
    let body = json!({ "cluster_name": edit.name, "deletion_protection": edit.deletion_protection });
    let path = format!("/cluster/edit/{}", paths::encode_segment(&edit.cluster)?);
    let accepted = ctx.api.send_json(Method::PATCH, &path, &body).await?;
    accepted::report_accepted(ctx, accepted, Wait::default()).await
}

/// Names a cluster with its ID and owner, so that the user can tell it from others.
fn cluster_with_owner(cluster: &Value) -> String {
    let (name, id, owner) = (text_field(cluster, "name"), text_field(cluster, "id"), text_field(cluster, "owner"));
    sanitize_line(&format!("cluster {} of {owner}", tables::name_with_id(name, id)))
}

fn render_clusters(ctx: &Context<'_>, body: &Value, org: bool, instances: bool) -> String {
    let clusters = tables::render_list(
        ctx,
        &body["clusters"],
        if org { CLUSTERS_WITH_OWNER } else { CLUSTERS },
        "There are no clusters; create one with `tarn cluster create TYPE`.",
    );
    if !instances {
        return clusters;
    }
    let all = body["clusters"].as_array().into_iter().flatten();
    let instances: Vec<Value> =
        all.flat_map(|cluster| cluster["instances"].as_array().into_iter().flatten()).cloned().collect();
    format!(
        "{clusters}\n\n{}",
        tables::render_list(ctx, &Value::Array(instances), INSTANCES, "There are no instances.")
    )
}

const CLUSTERS: &[Column] = &[
    ("NAME", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("STATUS", |row| text_field(row, "status").into()),
    ("TYPE", |row| text_field(row, "instance_type").into()),
    ("NODES", |row| tables::number_cell(row, "num_nodes")),
    ("EXPLANATION", |row| text_field(row, "explanation").into()),
];

const CLUSTERS_WITH_OWNER: &[Column] = &[
    CLUSTERS[0],
    CLUSTERS[1],
    CLUSTERS[2],
    CLUSTERS[3],
    CLUSTERS[4],
    ("OWNER", |row| text_field(row, "owner").into()),
    CLUSTERS[5],
];

const INSTANCES: &[Column] = &[
    ("INSTANCE", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("STATUS", |row| text_field(row, "status").into()),
    ("ADDRESS", |row| text_field(row, "private_ip").into()),
];

const TYPES: &[Column] = &[
    ("TYPE", |row| text_field(row, "name").into()),
    ("CPUS", |row| tables::number_cell(row, "cpus")),
    ("MEMORY", |row| match row["memory_bytes"].as_f64() {
        Some(bytes) => format!("{:.1} GiB", bytes / f64::from(1 << 30)),
        None => String::new(),
    }),
    ("GPUS", |row| tables::number_cell(row, "gpus")),
    ("MODEL", |row| text_field(row, "gpu_model").into()),
    ("FIT NOW", |row| tables::number_cell(row, "available")),
    ("$/H", |row| tables::number_cell(row, "hourly_rate")),
];

const FIELDS: &[Column] = &[
    ("Name", |row| text_field(row, "name").into()),
    ("ID", |row| text_field(row, "id").into()),
    ("Status", |row| text_field(row, "status").into()),
    ("Explanation", |row| text_field(row, "explanation").into()),
    ("Type", |row| text_field(row, "instance_type").into()),
    ("Nodes", |row| tables::number_cell(row, "num_nodes")),
    ("Instances", |row| {
        tables::join_cells(&row["instances"], |each| {
            format!("{} {}", text_field(each, "id"), text_field(each, "status"))
        })
    }),
    ("GPUs", |row| {
        let nodes = row["instances"].as_array().into_iter().flatten();
        let gpus = nodes.flat_map(|node| node["gpus"].as_array().into_iter().flatten());
        gpus.map(|gpu| format!("{} {}", text_field(gpu, "id"), text_field(gpu, "health")))
            .collect::<Vec<_>>()
            .join(", ")
    }),
    ("Volumes", |row| tables::join_cells(&row["storage"], |each| each.as_str().unwrap_or_default().into())),
    ("Container", |row| text_field(row, "container").into()),
    ("Image", |row| text_field(row, "image").into()),
    ("Owner", |row| text_field(row, "owner").into()),
    ("Protected", tables::deletion_protection_cell),
    ("$/h", |row| tables::number_cell(row, "hourly_rate")),
    ("Created", |row| tables::time_cell(row, "created_at")),
];
