//! The order that tells a node what to run. It knows jobs and nodes, and not how nodes are reached.

use tarn_link::JobOrder;
use tarn_model::clusters::Instance;
use tarn_model::job_configs::Nodes;
use tarn_model::jobs::Job;

/// The ports at which the nodes of a job meet: below the range from which the kernel assigns ports.
const FIRST_PORT: u32 = 20_000;
const PORTS: u32 = 10_000;

/// Builds the order for the node at `rank`; `nodes` are all nodes of the job.
pub(super) fn build_order(job: &Job, nodes: &[&Instance], rank: usize, grace_seconds: u32) -> JobOrder {
    JobOrder {
        job: job.id.to_string(),
        attempt: job.attempt,
        commands: job.config.commands.clone(),
        environment: node_environment(job, nodes, rank),
        hosts: nodes.iter().map(|node| node.name()).collect(),
        venv: job.config.venv,
        timeout_seconds: job.config.timeout_seconds,
        grace_seconds,
        has_files: job.has_files(),
    }
}

fn node_environment(job: &Job, nodes: &[&Instance], rank: usize) -> Vec<(String, String)> {
    let mut variables = job.config.env.clone();
    if job.config.nodes == Nodes::All {
        let master = nodes.first().and_then(|node| node.private_ip.clone()).unwrap_or_default();
        let ours = [
            ("MASTER_ADDR", master),
            ("MASTER_PORT", rendezvous_port(job).to_string()),
            ("NODE_RANK", rank.to_string()),
            ("NNODES", nodes.len().to_string()),
        ];
        variables.extend(ours.map(|(name, value)| (name.to_owned(), value)));
    }
    variables
}

/// Returns a port that every node derives by itself. Concurrent jobs rarely share it, nor do two attempts of one job.
fn rendezvous_port(job: &Job) -> u32 {
    let hash = blake3::hash(format!("{} {}", job.id, job.attempt).as_bytes());
    let bytes = hash.as_bytes();
    FIRST_PORT + u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) % PORTS
}
