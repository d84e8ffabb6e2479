//! Renders a job: as JSON, as a row of a table, as a text block, and as the closing message of a listener.

use tarn_api::jobs::{JobInfo, JobStatus};
use tarn_control::operations::jobs::JobView;
use tarn_model::ids::OrgId;
use tarn_model::job_configs::Nodes;
use tarn_model::jobs::{Job, Outcome, State, Teardown};

use crate::http::output::table::Cell::{Shown, Text};
use crate::http::output::table::{Dash, MAX_CELL_CHARS, Table, append_explanations, render_block};

/// Returns a job as JSON.
pub(super) fn job_info(view: JobView) -> JobInfo {
    let JobView { job, cluster_name, explanation } = view;
    JobInfo {
        status: job_status(&job.state),
        exit_code: ended_exit_code(&job),
        teardown_cluster: job.teardown != Teardown::No,
        nodes: node_selection(&job).to_owned(),
        id: job.id.into(),
        name: job.name,
        cluster_id: job.cluster.into(),
        cluster_name,
        instance_type: job.instance_type,
        message: explanation.clone(),
        public_message: explanation.clone(),
        explanation,
        created_at: job.created.to_string(),
        started_at: job.started.map(|time| time.to_string()),
        ended_at: job.ended.map(|time| time.to_string()),
        attempt: job.attempt,
        commands: job.config.commands,
        outputs: job.config.outputs,
        log_bytes: job.log_bytes,
        owner: job.owner.user.into(),
        org_id: job.owner.org.map(Into::into),
    }
}

/// Renders a row for each job, and below the table the explanations of jobs that have not ended.
pub(super) fn job_table(views: &[JobView]) -> String {
    let head = ["ID", "NAME", "STATUS", "EXIT", "CLUSTER", "TYPE", "CREATED", "ENDED"];
    let mut table = Table::new(head, views.len());
    for JobView { job, cluster_name, .. } in views {
        table.cells([
            Text(job.id.as_str()),
            Text(&job.name),
            Text(job.state.status()),
            Shown(&Dash(ended_exit_code(job))),
            Text(cluster_name.as_deref().unwrap_or(job.cluster.as_str())),
            Text(&job.instance_type),
            Shown(&job.created),
            Shown(&Dash(job.ended)),
        ]);
    }
    let mut out = table.render();
    let open = views.iter().filter(|view| !matches!(view.job.state, State::Ended(_)));
    append_explanations(&mut out, open.map(|view| (&view.job.name, &view.explanation)));
    out
}

/// Renders everything about one job.
pub(super) fn job_text(view: &JobView) -> String {
    let JobView { job, cluster_name, explanation } = view;
    let cluster = match cluster_name {
        Some(name) => format!("{name} ({})", job.cluster),
        None => job.cluster.to_string(),
    };
    let outputs = if job.config.outputs.is_empty() { "-".to_owned() } else { job.config.outputs.join(" ") };
    let lines = [
        ("ID", Text(job.id.as_str())),
        ("Name", Text(&job.name)),
        ("Status", Text(job.state.status())),
        ("Exit code", Shown(&Dash(ended_exit_code(job)))),
        ("Explanation", Text(explanation)),
        ("Cluster", Text(&cluster)),
        ("Type", Text(&job.instance_type)),
        ("Nodes", Text(node_selection(job))),
        ("Attempt", Shown(&job.attempt)),
        ("Commands", Shown(&job.config.commands.len())),
        ("Outputs", Text(&outputs)),
        ("Log", Text(&format!("{} bytes", job.log_bytes))),
        ("Teardown", Text(if job.teardown == Teardown::No { "no" } else { "yes" })),
        ("Owner", Text(job.owner.user.as_str())),
        ("Organization", Text(job.owner.org.as_ref().map_or("-", OrgId::as_str))),
        ("Created", Shown(&job.created)),
        ("Started", Shown(&Dash(job.started))),
        ("Ended", Shown(&Dash(job.ended))),
    ];
    render_block(&lines)
}

/// Returns the status and the closing message for a listener of a job that has ended.
pub(super) fn closing_message(view: &JobView) -> (&'static str, String) {
    let job = &view.job;
    let message = match job.state.outcome() {
        Some(Outcome::Completed) => format!("Job {} completed.", job.id),
        Some(Outcome::Error { exit_code, reason: None }) => {
            format!("Job {} ended with error, exit code {exit_code}.", job.id)
        }
        Some(Outcome::Error { exit_code, reason: Some(reason) }) => {
            format!("Job {} ended with error, exit code {exit_code}: {reason}.", job.id)
        }
        Some(Outcome::Failed { reason }) => format!("Job {} failed: {reason}.", job.id),
        Some(Outcome::Canceled) => format!("Job {} was canceled.", job.id),
        None => format!("Job {} is {}.", job.id, job.state.status()),
    };
    let hint = format!(" Fetch its outputs with `tp job pull {}`.", job.id);
    let hint = if job.config.outputs.is_empty() { "" } else { &hint };
    let status = if matches!(job.state.outcome(), Some(Outcome::Completed)) { "success" } else { "error" };
    (status, format!("{}{hint}", tarn_base::plain(&message, MAX_CELL_CHARS)))
}

/// Returns the status of the API.
pub(super) fn job_status(state: &State) -> JobStatus {
    match state {
        State::Draft | State::Pending | State::Starting => JobStatus::Pending,
        State::Stopping(Outcome::Canceled) | State::Collecting(Outcome::Canceled) => JobStatus::Canceling,
        State::Running | State::Stopping(_) | State::Collecting(_) => JobStatus::Running,
        State::Ended(Outcome::Completed) => JobStatus::Completed,
        State::Ended(Outcome::Error { .. }) => JobStatus::Error,
        State::Ended(Outcome::Failed { .. }) => JobStatus::Failed,
        State::Ended(Outcome::Canceled) => JobStatus::Canceled,
    }
}

/// Returns the exit code; only a job that has ended has one.
fn ended_exit_code(job: &Job) -> Option<u8> {
    match &job.state {
        State::Ended(outcome) => outcome.exit_code(),
        State::Draft | State::Pending | State::Starting | State::Running => None,
        State::Stopping(_) | State::Collecting(_) => None,
    }
}

fn node_selection(job: &Job) -> &'static str {
    match job.config.nodes {
        Nodes::First => "first",
        Nodes::All => "all",
    }
}

/// Renders a number of bytes with a unit.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} bytes"),
    }
}
