//! The nodes that take part in an attempt, each followed by a task of its own.

use std::time::Duration;

use tarn_model::jobs::State;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::hand::Hand;
use super::node::{Event, Follower, Told};
use super::orders;
use crate::{Error, Result};

/// How many frames of all nodes of a job may wait to be gathered, each of at most 128 KiB.
const QUEUE: usize = 16;

/// How long the nodes may take to hear that everything is written down; who does not hear it is told by the sweep.
const FAREWELL: Duration = Duration::from_secs(2);

/// The tasks that follow the nodes. They end with it.
pub(super) struct Crew {
    told: Vec<watch::Sender<Told>>,
    tasks: JoinSet<()>,
}

impl Crew {
    /// Begins to follow all nodes of a job on which it has not ended.
    pub(super) fn begin(hand: &Hand) -> (Crew, mpsc::Receiver<(usize, Event)>) {
        let (events, queue) = mpsc::channel(QUEUE);
        let (mut told, mut tasks) = (Vec::with_capacity(hand.nodes.len()), JoinSet::new());
        let instances: Vec<_> = hand
            .nodes
            .iter()
            .filter_map(|node| hand.instances.iter().find(|instance| instance.id == node.instance))
            .collect();
        let grace = u32::try_from(hand.control.settings().jobs.stop_grace.as_secs()).unwrap_or(u32::MAX);
        let memory = hand.shared.memory.share();
        let is_stopping = matches!(hand.job.state, State::Stopping(_));
        for (at, node) in hand.nodes.iter().enumerate() {
            let (sender, receiver) =
                watch::channel(Told { acknowledged: node.log_offset, stop: is_stopping, done: false });
            told.push(sender);
            if node.ended {
                continue;
            }
            let follower = Follower {
                control: hand.control.clone(),
                job: hand.job.id.clone(),
                order: orders::order(&hand.job, &instances, at, grace),
                at,
                instance: node.instance.clone(),
                name: hand.node(at).1,
                boot: node.boot,
                offset: node.log_offset,
                may_start: hand.job.state != State::Running,
                is_patient: hand.job.config.retries.count > 0,
                events: events.clone(),
                told: receiver,
                memory: memory.clone(),
                shared: hand.shared.clone(),
            };
            tasks.spawn(follower.follow());
        }
        (Crew { told, tasks }, queue)
    }

    /// Says to every node how much of its output is written down.
    pub(super) fn acknowledge(&self, hand: &Hand) {
        for (told, node) in self.told.iter().zip(&hand.nodes) {
            told.send_if_modified(|told| std::mem::replace(&mut told.acknowledged, node.log_offset) != node.log_offset);
        }
    }

    /// Stops the attempt on every node.
    pub(super) fn stop(&self) {
        for told in &self.told {
            told.send_if_modified(|told| !std::mem::replace(&mut told.stop, true));
        }
    }

    /// Done when a task has failed in a way that nobody foresaw.
    pub(super) async fn failed(&mut self) -> Result<std::convert::Infallible> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(Error::internal)?;
        }
        std::future::pending().await
    }

    /// Says to every node that everything is written down.
    pub(super) async fn dismiss(mut self) {
        self.told.iter().for_each(|told| told.send_modify(|told| told.done = true));
        let all = async { while self.tasks.join_next().await.is_some() {} };
        // Those who did not hear it are told by the sweep.
        let _ = tokio::time::timeout(FAREWELL, all).await;
    }
}
