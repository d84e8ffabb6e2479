//! Callers that do everything that can be done, and remember what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tarn_model::Ids;
use tarn_store::testing::SeededIds;

use crate::kill::engine::Tarn;

/// What was acknowledged so far.
#[derive(Default)]
pub(crate) struct Workload {
    open: BTreeSet<String>,
    clusters: BTreeSet<String>,
    volumes: BTreeSet<String>,
    /// How many requests ended, by type and status.
    pub(crate) ended: BTreeMap<String, u64>,
    /// How many acknowledged requests were still under way when the program was killed.
    pub(crate) open_at_kill: u64,
}

impl Workload {
    /// Six callers, and a kill in the middle of their calls.
    pub(crate) async fn run_until_killed(&mut self, tarn: &Tarn, life: Duration, chance: &SeededIds) {
        let seeds: Vec<u64> = (0..6).map(|_| chance.bits()).collect();
        let callers = join_all(seeds.into_iter().map(|seed| calls(tarn, SeededIds::new(seed))));
        let killer = async {
            tokio::time::sleep(life).await;
            tarn.kill();
        };
        let (answers, ()) = tokio::join!(callers, killer);
        for answer in answers.into_iter().flatten() {
            self.open.extend(strings(&answer, "request_id").chain(strings(&answer, "request_ids")));
            self.clusters.extend(strings(&answer, "cluster_id"));
            self.volumes.extend(strings(&answer, "storage_id"));
        }
        self.open_at_kill += self.open.len() as u64;
    }

    /// Waits until every acknowledged request has ended; what waits for capacity gets it by destroying what runs.
    pub(crate) async fn settle(&mut self, tarn: &Tarn) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !self.open.is_empty() {
            assert!(Instant::now() < deadline, "these never end: {:?}", self.open);
            for id in self.open.clone() {
                let (status, info) = tarn.call(Method::GET, &format!("/request/info/{id}"), None).await.unwrap();
                assert_eq!(status, 200, "an acknowledged request is gone: {info}");
                let state = info["status"].as_str().unwrap();
                if state == "COMPLETED" || state == "FAILED" {
                    let killed = info["message"].as_str().is_some_and(|message| message.contains("were killed"));
                    let how = if killed { " with somebody killed" } else { "" };
                    let key = format!("{} {state}{how}", info["request_type"].as_str().unwrap());
                    *self.ended.entry(key).or_default() += 1;
                    self.open.remove(&id);
                } else if state == "PENDING" {
                    let cluster = info["object_id"].as_str().unwrap();
                    if let Some((202, answer)) = tarn.call(Method::DELETE, &format!("/cluster/{cluster}"), None).await {
                        self.open.extend(strings(&answer, "request_id"));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (noun, ids) in [("cluster", &self.clusters), ("storage", &self.volumes)] {
            for id in ids {
                let (status, _) = tarn.call(Method::GET, &format!("/{noun}/info/{id}"), None).await.unwrap();
                assert_eq!(status, 200, "the acknowledged {id} is gone");
            }
        }
        self.clusters.clear();
        self.volumes.clear();
        // Requests that were accepted but whose answer was lost end as well.
        for status in ["PENDING", "PROCESSING", "RETRYING"] {
            loop {
                let path = format!("/request/list?status={status}&limit=1000");
                let (_, list) = tarn.call(Method::GET, &path, None).await.unwrap();
                let open = list["requests"].as_array().unwrap().clone();
                if open.is_empty() {
                    break;
                }
                assert!(Instant::now() < deadline, "these never end: {open:?}");
                for request in open.iter().filter(|_| status == "PENDING") {
                    let cluster = request["object_id"].as_str().unwrap();
                    tarn.call(Method::DELETE, &format!("/cluster/{cluster}"), None).await;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

/// One caller: random calls until nobody answers any more. Returns the bodies of those that were accepted.
async fn calls(tarn: &Tarn, chance: SeededIds) -> Vec<Value> {
    let mut accepted = Vec::new();
    loop {
        let Some((_, clusters)) = tarn.call(Method::GET, "/cluster/list", None).await else { return accepted };
        let Some((_, volumes)) = tarn.call(Method::GET, "/storage/list", None).await else { return accepted };
        let (clusters, volumes) = (&clusters["clusters"], &volumes["volumes"]);
        let (method, path, body) = next_call(clusters, volumes, &chance);
        if path == "/storage/detach" && chance.bits().is_multiple_of(2) {
            use_volume(tarn, clusters, body.as_ref().unwrap()).await;
        }
        match tarn.call(method, &path, body).await {
            Some((202, answer)) => accepted.push(answer),
            Some(_) => {}
            None => return accepted,
        }
    }
}

/// Lets somebody use the volume that is about to be detached.
async fn use_volume(tarn: &Tarn, clusters: &Value, detach: &Value) {
    let cluster = clusters.as_array().unwrap().iter().find(|cluster| cluster["id"] == detach["cluster_id"]);
    let Some(node) = cluster.and_then(|cluster| cluster["instances"][0]["id"].as_str()) else { return };
    tarn.hold(detach["storage_id"].as_str().unwrap(), node).await;
}

fn next_call(clusters: &Value, volumes: &Value, chance: &SeededIds) -> (Method, String, Option<Value>) {
    let pick = |list: &Value| {
        let items = list.as_array().unwrap();
        items.get(chance.bits() as usize % items.len().max(1)).cloned().unwrap_or_default()
    };
    let (cluster, volume) = (pick(clusters), pick(volumes));
    let (cluster, on) = (cluster["id"].as_str().unwrap_or("none"), volume["attached_clusters"][0].as_str());
    let volume = volume["id"].as_str().unwrap_or("s-000000000000");
    let crowded = |list: &Value| list.as_array().unwrap().len() > 6;
    match chance.bits() % 11 {
        0 | 1 if !crowded(clusters) => {
            let image = chance.bits().is_multiple_of(2).then_some("example.org/app:1");
            let body = json!({ "instance_type": "1xH100", "num_nodes": 2, "container": image });
            (Method::POST, "/cluster/create".to_owned(), Some(body))
        }
        0..=2 => (Method::DELETE, format!("/cluster/{cluster}"), None),
        3 => (Method::PATCH, format!("/cluster/edit/{cluster}"), Some(json!({ "deletion_protection": false }))),
        4 | 5 if !crowded(volumes) => {
            (Method::POST, "/storage/create".to_owned(), Some(json!({ "size": 1 + chance.bits() % 5 })))
        }
        4..=6 if on.is_none() => {
            let body =
                json!({ "storage_id": volume, "cluster_ids": [cluster], "live": chance.bits().is_multiple_of(2) });
            (Method::POST, "/storage/attach".to_owned(), Some(body))
        }
        4..=7 if on.is_some() => {
            let body = json!({ "storage_id": volume, "cluster_id": on, "live": chance.bits().is_multiple_of(2) });
            (Method::POST, "/storage/detach".to_owned(), Some(body))
        }
        8 => (Method::DELETE, format!("/storage/{volume}"), None),
        9 => (Method::POST, format!("/cluster/restart/{cluster}"), None),
        _ => (Method::PATCH, format!("/storage/edit/{volume}"), Some(json!({ "size_gb": 5 + chance.bits() % 20 }))),
    }
}

/// The text or texts in a field of an answer.
fn strings<'a>(answer: &'a Value, field: &str) -> impl Iterator<Item = String> + 'a {
    let value = &answer[field];
    let many = value.as_array().cloned().unwrap_or_default();
    many.into_iter().chain([value.clone()]).filter_map(|value| value.as_str().map(str::to_owned))
}
