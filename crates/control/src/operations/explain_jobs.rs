//! What a job waits for, since when it runs and where, or how it ended, in words for its owner.

use std::collections::HashMap;
use std::time::Duration;

use tarn_model::clusters::Cluster;
use tarn_model::ids::{ClusterId, JobId};
use tarn_model::jobs::{Job, Outcome, State};
use tarn_model::{Time, lifecycle};
use tarn_store::{Tx, clusters, instances, job_nodes, jobs};

use super::jobs::JobView;
use crate::{Control, Result};

/// So many nodes are told by name; of a thousand nobody would read the list.
const NAMED: usize = 3;

/// Explains jobs within one transaction; what several explanations need is read once.
pub(super) struct Explainer<'c> {
    control: &'c Control,
    clusters: HashMap<ClusterId, Option<Cluster>>,
    lines: HashMap<ClusterId, HashMap<JobId, u64>>,
}

impl<'c> Explainer<'c> {
    pub(super) fn new(control: &'c Control) -> Self {
        Explainer { control, clusters: HashMap::new(), lines: HashMap::new() }
    }

    /// A job with all that is shown of it.
    pub(super) fn view(&mut self, tx: &mut Tx<'_>, job: Job) -> Result<JobView> {
        let cluster_name = self.cluster(tx, &job.cluster)?.map(|cluster| cluster.name.clone());
        let explanation = self.explain(tx, &job)?;
        Ok(JobView { job, cluster_name, explanation })
    }

    fn explain(&mut self, tx: &mut Tx<'_>, job: &Job) -> Result<String> {
        let since = job.since;
        Ok(match &job.state {
            State::Draft => {
                let what = if job.archive_bytes.is_none() { "files" } else { "start" };
                let until = since.after(self.control.settings().jobs.draft_timeout);
                format!("Waits for its {what} since {since}; it is forgotten at {until}.")
            }
            State::Pending => self.pending(tx, job)?,
            State::Starting => format!("Is started on {} since {since}{}.", nodes(tx, job)?, attempt(job)),
            State::Running => {
                let last = self.last_output(job).map(|last| format!("; last output at {last}")).unwrap_or_default();
                format!("Runs on {} since {since}{}{last}.", nodes(tx, job)?, attempt(job))
            }
            State::Stopping(Outcome::Canceled) => {
                let grace = words(self.control.settings().jobs.stop_grace);
                format!("Is being canceled since {since}; what does not end within {grace} is killed.")
            }
            State::Stopping(outcome) => format!("Is being stopped since {since}: {}.", told(outcome)),
            State::Collecting(outcome) => {
                format!(
                    "Nothing of it runs any more ({}); its output and files are being kept since {since}.",
                    told(outcome)
                )
            }
            State::Ended(outcome) => ended(job, outcome),
        })
    }

    fn pending(&mut self, tx: &mut Tx<'_>, job: &Job) -> Result<String> {
        let again = if job.attempt > 1 { format!(" Then it runs again{}.", attempt(job)) } else { String::new() };
        let since = job.since;
        let Some(cluster) = self.cluster(tx, &job.cluster)? else {
            return Ok(format!("Waits for cluster {} since {since}.{again}", job.cluster));
        };
        let name = cluster.name.clone();
        if cluster.state != lifecycle::State::Running {
            let state = cluster.state.name();
            return Ok(format!("Waits for cluster {name}, which is {state}, since {since}.{again}"));
        }
        Ok(match self.before(tx, job)? {
            0 => format!("It is the next on cluster {name} and starts at once; it waits since {since}.{again}"),
            1 => format!("Waits for 1 job before it on cluster {name} since {since}.{again}"),
            many => format!("Waits for {many} jobs before it on cluster {name} since {since}.{again}"),
        })
    }

    /// When the job last wrote something, if it is driven here.
    fn last_output(&self, job: &Job) -> Option<Time> {
        let quiet = self.control.live_logs().known(&job.id)?.quiet_for()?;
        Some(self.control.clock().now().before(quiet))
    }

    fn cluster(&mut self, tx: &mut Tx<'_>, id: &ClusterId) -> Result<Option<&Cluster>> {
        if !self.clusters.contains_key(id) {
            let found = clusters::get(tx, id)?;
            self.clusters.insert(id.clone(), found);
        }
        Ok(self.clusters.get(id).and_then(Option::as_ref))
    }

    /// How many jobs have to end before it is the turn of this one: of those that have their turn or have it before, all but as
    /// many as run beside it.
    fn before(&mut self, tx: &mut Tx<'_>, job: &Job) -> Result<u64> {
        if !self.lines.contains_key(&job.cluster) {
            let beside =
                self.cluster(tx, &job.cluster)?.map_or(0, |cluster| u64::from(cluster.jobs_parallel).saturating_sub(1));
            let (placed, waiting) = jobs::line(tx, &job.cluster)?;
            let line =
                waiting.into_iter().zip(placed..).map(|(id, before)| (id, before.saturating_sub(beside))).collect();
            self.lines.insert(job.cluster.clone(), line);
        }
        Ok(self.lines.get(&job.cluster).and_then(|line| line.get(&job.id)).copied().unwrap_or(0))
    }
}

/// The names of the nodes that a job has.
fn nodes(tx: &mut Tx<'_>, job: &Job) -> Result<String> {
    let nodes = job_nodes::of_job(tx, &job.id)?;
    let mut names = Vec::new();
    for node in nodes.iter().take(NAMED) {
        let instance = instances::get(tx, &node.instance)?;
        names.push(instance.map_or_else(|| node.instance.to_string(), |instance| instance.name()));
    }
    if nodes.len() > NAMED {
        names.push(format!("{} more", nodes.len() - NAMED));
    }
    Ok(match names.is_empty() {
        true => format!("cluster {}", job.cluster),
        false => names.join(", "),
    })
}

/// Which attempt it is, where there may be several.
fn attempt(job: &Job) -> String {
    let (attempt, most) = (job.attempt, job.config.retries.count.saturating_add(1));
    let why = job.note.as_deref().map(|note| format!(" ({note})")).unwrap_or_default();
    match most {
        1 => why,
        _ => format!(", attempt {attempt} of {most}{why}"),
    }
}

fn ended(job: &Job, outcome: &Outcome) -> String {
    let took = match (job.started, job.ended) {
        (Some(started), Some(ended)) => Some(words(ended.until(started))),
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

/// How a job that is not over yet will have ended.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed => "all commands succeeded".to_owned(),
        Outcome::Error { exit_code, reason: None } => format!("exit code {exit_code}"),
        Outcome::Error { exit_code, reason: Some(reason) } => format!("exit code {exit_code}, {reason}"),
        Outcome::Failed { reason } => reason.clone(),
        Outcome::Canceled => "canceled".to_owned(),
    }
}

/// A span of time as people say it.
fn words(span: Duration) -> String {
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

    #[test]
    fn spans_are_said_as_people_say_them() {
        let said = |millis| words(Duration::from_millis(millis));
        assert_eq!(said(1_250), "1.2 s");
        assert_eq!(said(12_900), "12 s");
        assert_eq!(said(200_000), "3 min 20 s");
        assert_eq!(said(7_500_000), "2 h 5 min");
        assert_eq!(said(90_000_000), "1 d 1 h");
    }
}
