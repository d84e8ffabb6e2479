//! The nodes that take part in an attempt, each followed by its own task.

use std::time::Duration;

use tarn_model::jobs::State;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::job_order;
use super::node_follower::{AttemptSignal, NodeEvent, NodeFollower};
use crate::jobs::queue::leased_job::LeasedJob;
use crate::{Error, Result};

/// How many events of all nodes of a job may be queued; a frame has at most 128 KiB.
const EVENT_QUEUE: usize = 16;

/// How long the nodes may take to acknowledge the end. The sweep handles those that take longer.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The tasks that follow the nodes. Dropping it ends them.
pub(in crate::jobs) struct NodeFollowers {
    signals: Vec<watch::Sender<AttemptSignal>>,
    tasks: JoinSet<()>,
}

impl NodeFollowers {
    /// Starts to follow every node on which the job has not ended.
    pub(super) fn spawn(leased: &LeasedJob) -> (NodeFollowers, mpsc::Receiver<(usize, NodeEvent)>) {
        let (events, queue) = mpsc::channel(EVENT_QUEUE);
        let (mut signals, mut tasks) = (Vec::with_capacity(leased.nodes.len()), JoinSet::new());
        let instances: Vec<_> = leased
            .nodes
            .iter()
            .filter_map(|node| leased.instances.iter().find(|instance| instance.id == node.instance))
            .collect();
        let grace = u32::try_from(leased.control.settings().jobs.stop_grace.as_secs()).unwrap_or(u32::MAX);
        let is_stopping = matches!(leased.job.state, State::Stopping(_));
        for (at, node) in leased.nodes.iter().enumerate() {
            let (sender, receiver) =
                watch::channel(AttemptSignal { acknowledged: node.log_offset, stop: is_stopping, done: false });
            signals.push(sender);
            if node.ended {
                continue;
            }
            let follower = NodeFollower {
                control: leased.control.clone(),
                job: leased.job.id.clone(),
                order: job_order::build_order(&leased.job, &instances, at, grace),
                at,
                instance: node.instance.clone(),
                name: leased.instance_and_name(at).1,
                boot: node.boot,
                offset: node.log_offset,
                may_start: leased.job.state != State::Running,
                retries_start: leased.job.config.retries.count > 0,
                events: events.clone(),
                signal: receiver,
                shared: leased.shared.clone(),
            };
            tasks.spawn(follower.follow());
        }
        (NodeFollowers { signals, tasks }, queue)
    }

    /// Tells every node how much of its output is stored.
    pub(super) fn acknowledge_output(&self, leased: &LeasedJob) {
        for (signal, node) in self.signals.iter().zip(&leased.nodes) {
            signal.send_if_modified(|signal| {
                std::mem::replace(&mut signal.acknowledged, node.log_offset) != node.log_offset
            });
        }
    }

    /// Stops the attempt on every node.
    pub(super) fn stop_attempt(&self) {
        for signal in &self.signals {
            signal.send_if_modified(|signal| !std::mem::replace(&mut signal.stop, true));
        }
    }

    /// Completes only when a task has panicked.
    pub(super) async fn wait_for_panic(&mut self) -> Result<std::convert::Infallible> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(Error::internal)?;
        }
        std::future::pending().await
    }

    /// Tells every node that the end is stored, and waits for the tasks.
    pub(in crate::jobs) async fn finish(mut self) {
        self.signals.iter().for_each(|signal| signal.send_modify(|signal| signal.done = true));
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // The sweep dismisses attempts on nodes that did not reply in time.
        let _ = tokio::time::timeout(FINISH_TIMEOUT, all).await;
    }
}
