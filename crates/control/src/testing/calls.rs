//! Calls of the caller, and what the database says after them.

use tarn_model::ids::{ClusterId, JobId, RequestId, VolumeId};
use tarn_store::events::{self, Recorded};

use super::World;
use crate::Caller;
use crate::operations::admin::{self, NewUser};
use crate::operations::{clusters, storage};

impl World {
    /// A caller in another organization.
    pub async fn other_tenant(&self) -> Caller {
        self.member("eve@example.org", Some("others")).await
    }

    /// A new user as a caller.
    pub async fn member(&self, email: &str, org: Option<&str>) -> Caller {
        let new = NewUser { email: email.into(), org_name: org.map(str::to_owned) };
        let made = admin::create_user(&self.control, &self.caller, new).await.unwrap();
        self.control.authenticate(&made.api_key).await.unwrap()
    }

    /// A cluster that is being created.
    pub async fn create(&self, kind: &str, nodes: u32) -> (ClusterId, RequestId) {
        self.create_of(kind, nodes, None).await
    }

    /// A cluster that another caller is creating.
    pub async fn create_as(&self, caller: &Caller, kind: &str, nodes: u32) -> (ClusterId, RequestId) {
        let new = clusters::NewCluster { instance_type: kind.into(), num_nodes: Some(nodes), ..Default::default() };
        let accepted = clusters::create(&self.control, caller, new).await.unwrap();
        (accepted.cluster, accepted.request)
    }

    /// A cluster whose nodes are started from an image.
    pub async fn create_of(&self, kind: &str, nodes: u32, image: Option<&str>) -> (ClusterId, RequestId) {
        let (instance_type, container) = (kind.into(), image.map(str::to_owned));
        let new = clusters::NewCluster { instance_type, num_nodes: Some(nodes), container, ..Default::default() };
        let accepted = clusters::create(&self.control, &self.caller, new).await.unwrap();
        (accepted.cluster, accepted.request)
    }

    /// A cluster that runs.
    pub async fn running(&self, kind: &str, nodes: u32) -> ClusterId {
        let (cluster, _) = self.create(kind, nodes).await;
        self.settle().await;
        let view = clusters::info(&self.control, &self.caller, cluster.as_str()).await.unwrap();
        assert_eq!(view.cluster.state.name(), "RUNNING");
        cluster
    }

    /// A volume that is ready.
    pub async fn ready_volume(&self) -> VolumeId {
        let new = storage::NewVolume { size_gb: 10, ..Default::default() };
        let volume = storage::create(&self.control, &self.caller, new).await.unwrap().volume;
        self.settle().await;
        volume
    }

    /// The cluster as the caller sees it.
    pub async fn info(&self, cluster: &ClusterId) -> clusters::ClusterView {
        clusters::info(&self.control, &self.caller, cluster.as_str()).await.unwrap()
    }

    /// The events with this verb, oldest first.
    pub async fn events(&self, verb: &str) -> Vec<Recorded> {
        let all = self.store.read(|tx| events::after(tx, 0, 10_000)).await.unwrap();
        all.into_iter().filter(|event| event.verb == verb).collect()
    }

    /// The verbs of the events of one object, oldest first.
    pub async fn events_of(&self, object: &str) -> Vec<String> {
        let all = self.store.read(|tx| events::after(tx, 0, 10_000)).await.unwrap();
        all.into_iter().filter(|event| event.object == object).map(|event| event.verb).collect()
    }

    /// How many pieces of a log are rows.
    pub async fn inline_pieces(&self, job: &JobId) -> usize {
        self.store.read(|tx| tarn_store::job_logs::inline(tx, job)).await.unwrap().len()
    }

    /// Merges the rows of a small log into an object, as happens when there are many.
    pub async fn make_object(&self, job: &JobId) {
        self.control.objects().ensure_internal("jobs").await.unwrap();
        let job = job.clone();
        let write = self.store.write(move |tx| -> Result<(), tarn_objects::Error> {
            let pieces = tarn_store::job_logs::from(tx, &job, 0, 100)?;
            let data: Vec<u8> = pieces.into_iter().flat_map(|piece| piece.data.unwrap()).collect();
            tarn_objects::internal::put_small(tx, "jobs", &format!("{job}/log/{:020}", 0), &data)?;
            Ok(tarn_store::job_logs::merge(tx, &job, 0, data.len() as u64)?)
        });
        write.await.unwrap();
    }

    /// How many rows a job has: one or none.
    pub async fn rows_of_job(&self, job: &JobId) -> usize {
        let unknown = self.store.read(|tx| tarn_store::jobs::unknown(tx, std::slice::from_ref(job))).await.unwrap();
        1 - unknown.len()
    }
}
