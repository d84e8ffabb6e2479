//! A cluster with simulated guests, and an engine that runs its jobs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tarn_control::jobs::dispatch::Dispatcher;
use tarn_control::jobs::logs;
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::operations::jobs::{self, JobView, NewJob};
use tarn_control::testing::{World, world};
use tarn_model::ids::{ClusterId, InstanceId};
use tarn_store::testing::DatabaseKind;
use tokio::task::JoinHandle;

use crate::jobs::guests::{Guest, Guests};

/// How long anything may take before a test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster with guests, and an engine that runs its jobs.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) guests: Guests,
    pub(crate) cluster: ClusterId,
    pub(crate) nodes: Vec<InstanceId>,
    dispatcher: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(dispatcher) = self.dispatcher.lock().unwrap().take() {
            dispatcher.abort();
        }
    }
}

impl Stage {
    pub(crate) async fn open(engine: DatabaseKind, nodes: u32, jobs_parallel: u32) -> Option<Stage> {
        Some(Stage::on(world(engine).await?, nodes, jobs_parallel).await)
    }

    pub(crate) async fn on(world: World, nodes: u32, jobs_parallel: u32) -> Stage {
        let guests = Guests::default();
        let dialled = guests.clone();
        world.driver.dial_guests(move |instance| dialled.dial(instance));
        let new = NewCluster {
            instance_type: "1xCPU".into(),
            num_nodes: Some(nodes),
            jobs_parallel: Some(jobs_parallel),
            ..Default::default()
        };
        let cluster = clusters::create(&world.control, &world.caller, new).await.unwrap().cluster;
        world.settle().await;
        let nodes = world.info(&cluster).await.instances.into_iter().map(|node| node.id).collect();
        let stage = Stage { world, guests, cluster, nodes, dispatcher: Mutex::default() };
        stage.begin().await;
        stage
    }

    /// Starts a dispatcher, as after the start of an engine without replicas.
    pub(crate) async fn begin(&self) {
        let dispatcher = Dispatcher::new(self.world.control.clone());
        dispatcher.recover(true).await.unwrap();
        let serving = tokio::spawn(dispatcher.serve(std::future::pending(), Duration::from_secs(1)));
        *self.dispatcher.lock().unwrap() = Some(serving);
    }

    /// Aborts the dispatcher at whatever point it is. Its tasks end with it, and it starts nothing afterwards.
    pub(crate) async fn crash(&self) {
        let dispatcher = self.dispatcher.lock().unwrap().take();
        if let Some(dispatcher) = dispatcher {
            dispatcher.abort();
            let _ = dispatcher.await;
        }
    }

    pub(crate) fn guest(&self, at: usize) -> Arc<Guest> {
        self.guests.of(&self.nodes[at])
    }

    pub(crate) async fn run(&self, config: &str) -> JobView {
        self.run_with(config, false).await
    }

    pub(crate) async fn run_with(&self, config: &str, teardown: bool) -> JobView {
        let new = NewJob { config: config.to_owned(), cluster: self.cluster.to_string(), teardown, has_files: false };
        jobs::run(&self.world.control, &self.world.caller, new).await.unwrap()
    }

    pub(crate) async fn job(&self, view: &JobView) -> JobView {
        jobs::info(&self.world.control, &self.world.caller, view.job.id.as_str()).await.unwrap()
    }

    pub(crate) async fn cancel(&self, view: &JobView) {
        jobs::cancel(&self.world.control, &self.world.caller, view.job.id.as_str()).await.unwrap();
    }

    pub(crate) async fn ended(&self, view: &JobView) -> JobView {
        self.in_state(view, "ENDED").await
    }

    /// Waits until a job is in a state.
    pub(crate) async fn in_state(&self, view: &JobView, state: &str) -> JobView {
        let waiting = async {
            loop {
                let now = self.job(view).await;
                if now.job.state.name() == state {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(view) => view,
            Err(_) => panic!("the job is not {state}: {:?}", self.job(view).await),
        }
    }

    /// Reads the whole log of a job.
    pub(crate) async fn log(&self, view: &JobView) -> Vec<u8> {
        let mut log = Vec::new();
        loop {
            let id = view.job.id.as_str();
            let part =
                logs::read(&self.world.control, &self.world.caller, id, log.len() as u64, 8 << 20).await.unwrap();
            log.extend_from_slice(&part.data);
            if log.len() as u64 == part.total {
                return log;
            }
            assert!(!part.data.is_empty(), "a log has no gaps");
        }
    }

    pub(crate) async fn text(&self, view: &JobView) -> String {
        String::from_utf8(self.log(view).await).unwrap()
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(DEADLINE, waiting).await.unwrap_or_else(|_| panic!("timed out: {what}"));
}
