//! The explanation of a job for its owner: what it waits for, since when and where it runs, or how it ended.

use std::collections::HashMap;
use std::time::Duration;

use tarn_model::clusters::Cluster;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, Outcome, State};
use tarn_model::{Time, lifecycle};
use tarn_store::{Tx, clusters, instances, job_nodes, jobs};

use super::jobs::JobView;
use crate::{Control, Result};

/// How many nodes are named.
const MAX_NAMED_NODES: usize = 3;

/// Explains jobs within one transaction. What several explanations need is read once.
pub(super) struct Explainer<'c> {
    control: &'c Control,
    clusters: HashMap<ClusterId, Option<Cluster>>,
    queues: HashMap<ClusterId, HashMap<JobId, u64>>,
}

impl<'c> Explainer<'c> {
    pub(super) fn new(control: &'c Control) -> Self {
        Explainer { control, clusters: HashMap::new(), queues: HashMap::new() }
    }

    /// Returns a job as callers see it.
    pub(super) fn explain_job(&mut self, tx: &mut Tx<'_>, job: Job) -> Result<JobView> {
        let cluster_name = self.find_cluster(tx, &job.cluster)?.map(|cluster| cluster.name.clone());
        let explanation = self.explain_state(tx, &job)?;
        Ok(JobView { job, cluster_name, explanation })
    }

    fn explain_state(&mut self, tx: &mut Tx<'_>, job: &Job) -> Result<String> {
        let since = job.since;
        Ok(match &job.state {
            State::Draft => {
                let what = if job.archive_bytes.is_none() { "files" } else { "start" };
                let until = since.after(self.control.settings().jobs.draft_timeout);
                format!("Waits for its {what} since {since}; it is deleted at {until}.")
            }
            State::Pending => self.explain_pending(tx, job)?,
            State::Starting => {
                format!("Is starting on {} since {since}{}.", node_names(tx, job)?, describe_attempt(job))
            }
            State::Running => {
                let last = self.last_output(job).map(|last| format!("; last output at {last}")).unwrap_or_default();
                format!("Runs on {} since {since}{}{last}.", node_names(tx, job)?, describe_attempt(job))
            }
            State::Stopping(Outcome::Canceled) => {
                let grace = format_span(self.control.settings().jobs.stop_grace);
                format!("Is being canceled since {since}; processes that do not end within {grace} are killed.")
            }
            State::Stopping(outcome) => format!("Is being stopped since {since}: {}.", describe_outcome(outcome)),
            State::Collecting(outcome) => {
                format!(
                    "All its processes have ended ({}); its output and files are being saved since {since}.",
                    describe_outcome(outcome)
                )
            }
            State::Ended(outcome) => explain_end(job, outcome),
        })
    }

    fn explain_pending(&mut self, tx: &mut Tx<'_>, job: &Job) -> Result<String> {
        let again =
            if job.attempt > 1 { format!(" It then runs again{}.", describe_attempt(job)) } else { String::new() };
        let since = job.since;
        let Some(cluster) = self.find_cluster(tx, &job.cluster)? else {
            return Ok(format!("Waits for cluster {} since {since}.{again}", job.cluster));
        };
        let name = cluster.name.clone();
        if cluster.state != lifecycle::State::Running {
            let state = cluster.state.name();
            return Ok(format!("Waits for cluster {name}, which is {state}, since {since}.{again}"));
        }
        Ok(match self.jobs_ahead(tx, job)? {
            0 => format!("It is next on cluster {name} and starts at once; it has been waiting since {since}.{again}"),
            1 => format!("Waits for 1 job ahead of it on cluster {name} since {since}.{again}"),
            many => format!("Waits for {many} jobs ahead of it on cluster {name} since {since}.{again}"),
        })
    }

    /// Returns when the job last wrote output, if it runs in this engine.
    fn last_output(&self, job: &Job) -> Option<Time> {
        let quiet = self.control.memory.live_logs.find_log(&job.id)?.time_since_output()?;
        Some(self.control.clock().now().before(quiet))
    }

    fn find_cluster(&mut self, tx: &mut Tx<'_>, id: &ClusterId) -> Result<Option<&Cluster>> {
        if !self.clusters.contains_key(id) {
            let found = clusters::get(tx, id)?;
            self.clusters.insert(id.clone(), found);
        }
        Ok(self.clusters.get(id).and_then(Option::as_ref))
    }

    /// Returns how many jobs have to end before this one starts: those that run or are queued before it, minus those
    /// that may run beside it.
    fn jobs_ahead(&mut self, tx: &mut Tx<'_>, job: &Job) -> Result<u64> {
        if !self.queues.contains_key(&job.cluster) {
            let beside = self
                .find_cluster(tx, &job.cluster)?
                .map_or(0, |cluster| u64::from(cluster.jobs_parallel).saturating_sub(1));
            let (placed, waiting) = jobs::line(tx, &job.cluster)?;
            let queue =
                waiting.into_iter().zip(placed..).map(|(id, before)| (id, before.saturating_sub(beside))).collect();
            self.queues.insert(job.cluster.clone(), queue);
        }
        Ok(self.queues.get(&job.cluster).and_then(|queue| queue.get(&job.id)).copied().unwrap_or(0))
    }
}

/// Returns the names of the nodes of a job.
fn node_names(tx: &mut Tx<'_>, job: &Job) -> Result<String> {
    let nodes = job_nodes::of_job(tx, &job.id)?;
    let mut names = Vec::new();
    for node in nodes.iter().take(MAX_NAMED_NODES) {
        let instance = instances::get(tx, &node.instance)?;
        names.push(instance.map_or_else(|| node.instance.to_string(), |instance| instance.name()));
    }
    if nodes.len() > MAX_NAMED_NODES {
        names.push(format!("{} more", nodes.len() - MAX_NAMED_NODES));
    }
    Ok(if names.is_empty() { format!("cluster {}", job.cluster) } else { names.join(", ") })
}

/// Describes which attempt it is, if there may be several.
fn describe_attempt(job: &Job) -> String {
    let (attempt, most) = (job.attempt, job.config.retries.count.saturating_add(1));
    let why = job.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
    match most {
        1 => why,
        _ => format!(", attempt {attempt} of {most}{why}"),
    }
}

fn explain_end(job: &Job, outcome: &Outcome) -> String {
    let took = match (job.started, job.ended) {
        (Some(started), Some(ended)) => Some(format_span(ended.until(started))),
        _ => None,
    };
    let after = took.as_deref().map_or_else(|| " before it ran".to_owned(), |took| format!(" after {took}"));
    let mut text = match outcome {
        Outcome::Completed => match took {
            Some(took) => format!("Completed in {took}."),
            None => "Completed.".to_owned(),
        },
        Outcome::Error { exit_code, reason: Some(reason) } => format!("Error: exit code {exit_code}{after}: {reason}."),
        Outcome::Error { exit_code, reason: None } => format!("Error: exit code {exit_code}{after}."),
        Outcome::Failed { reason } => format!("Failed{after}: {reason}."),
        Outcome::Canceled => format!("Canceled{after}."),
    };
    if job.attempt > 1 {
        text.push_str(&format!(" That was attempt {}.", job.attempt));
    }
    if let Some(note) = &job.note {
        let mut note = note.trim_end_matches('.').to_owned();
        if let Some(first) = note.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        text.push_str(&format!(" {note}."));
    }
    text
}

/// Describes how a job that has not ended yet will end.
fn describe_outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "all commands succeeded".to_owned(),
        Outcome::Error { exit_code, reason: None } => format!("exit code {exit_code}"),
        Outcome::Error { exit_code, reason: Some(reason) } => format!("exit code {exit_code}, {reason}"),
        Outcome::Failed { reason } => reason.clone(),
        Outcome::Canceled => "canceled".to_owned(),
    }
}

/// Formats a duration for people.
fn format_span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations are formatted for people.
    #[test]
    fn durations_are_formatted() {
        let format = |millis| format_span(Duration::from_millis(millis));
        assert_eq!(format(1_250), "1.2 s");
        assert_eq!(format(12_900), "12 s");
        assert_eq!(format(200_000), "3 min 20 s");
        assert_eq!(format(7_500_000), "2 h 5 min");
        assert_eq!(format(90_000_000), "1 d 1 h");
    }
}
