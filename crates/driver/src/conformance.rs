//! What every driver has to pass: one suite, run by the tests of each.
//!
//! It is test support: it panics with a message where a driver does not keep its word. It makes and removes real things
//! through the driver, so give it one whose world is empty, with
//! room for three small instances and four gigabytes.
//! Start reading at [`check`].

mod instances;
mod mounts;
mod volumes;

use std::fmt::Debug;
use std::time::Duration;

use tarn_model::Ids;
use tarn_model::capacity::Shape;
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};

use crate::{Driver, Error, InstanceSpec, Observed, ObservedInstance, VolumeSpec};

/// So often a verb may ask to be tried again, which a driver under test may do: faults are part of its life.
const TRIES: u32 = 40;

/// Checks that the driver keeps the word of [`Driver`].
///
/// # Panics
/// When it does not, or when its world is not empty at the start.
pub async fn check(driver: &dyn Driver, ids: &dyn Ids) {
    let subject = Subject { driver, ids };
    assert_eq!(subject.observe().await, Observed::default(), "the suite needs a world that is empty at the start");
    let inventory = subject.driver.inventory().await.expect("inventory answers");
    assert_eq!(subject.driver.inventory().await, Ok(inventory.clone()), "the inventory is the same when asked twice");
    instances::check(&subject, &inventory).await;
    if driver.capabilities().volumes {
        volumes::check(&subject).await;
        mounts::check(&subject).await;
    } else {
        volumes::check_unsupported(&subject).await;
    }
    assert_eq!(subject.observe().await, Observed::default(), "after everything was removed the world is empty");
}

/// The driver under test, and fresh ids for what it is asked to make.
struct Subject<'a> {
    driver: &'a dyn Driver,
    ids: &'a dyn Ids,
}

impl Subject<'_> {
    async fn observe(&self) -> Observed {
        settle(|| self.driver.observe()).await.expect("observe answers")
    }

    /// What is seen of an instance, which has to be the same one by one and in the whole.
    async fn seen(&self, id: &InstanceId) -> Option<ObservedInstance> {
        let alone = settle(|| self.driver.observe_instance(id)).await.expect("observe_instance answers");
        let whole = self.observe().await.instances.remove(id);
        assert_eq!(alone, whole, "observe_instance and observe say the same of {id}");
        alone.map(sorted)
    }

    fn cluster(&self) -> ClusterId {
        ClusterId::fresh(self.ids)
    }

    /// A small instance, the only one of a new cluster.
    fn instance(&self) -> InstanceSpec {
        InstanceSpec {
            id: InstanceId::fresh(self.ids),
            cluster: self.cluster(),
            node: 0,
            name: "conformance-0".into(),
            shape: Shape { cpu_milli: 100, memory_bytes: 64 << 20, gpus: 0, gpu_model: None },
            gpus: Vec::new(),
            container: None,
            boot: 1,
            volumes: Vec::new(),
        }
    }

    fn volume(&self) -> VolumeSpec {
        VolumeSpec { id: VolumeId::fresh(self.ids), size_bytes: 1 << 30 }
    }

    async fn start(&self, spec: &InstanceSpec) -> ObservedInstance {
        sorted(twice("ensure_instance", || self.driver.ensure_instance(spec)).await)
    }

    async fn stop(&self, spec: &InstanceSpec) {
        twice("remove_instance", || self.driver.remove_instance(&spec.id)).await;
        assert_eq!(self.seen(&spec.id).await, None, "an instance that was removed is not seen");
    }

    async fn delete(&self, spec: &VolumeSpec) {
        twice("remove_volume", || self.driver.remove_volume(&spec.id)).await;
        let seen = settle(|| self.driver.observe_volume(&spec.id)).await;
        assert_eq!(seen, Ok(None), "a volume that was removed is not seen");
        assert!(!self.observe().await.volumes.contains_key(&spec.id), "nor is it in the whole");
    }
}

/// The order of mounts has no meaning.
fn sorted(mut instance: ObservedInstance) -> ObservedInstance {
    instance.volumes.sort();
    instance
}

/// Calls a verb until it answers something else than Retry.
async fn settle<T, F: Future<Output = Result<T, Error>>>(verb: impl Fn() -> F) -> Result<T, Error> {
    for _ in 1..TRIES {
        match verb().await {
            Err(Error::Retry(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            answer => return answer,
        }
    }
    verb().await
}

/// A verb that works has to work again, with the same answer.
async fn twice<T: PartialEq + Debug, F: Future<Output = Result<T, Error>>>(name: &str, verb: impl Fn() -> F) -> T {
    let first = settle(&verb).await.unwrap_or_else(|error| panic!("{name} works: {error:?}"));
    let second = settle(&verb).await.unwrap_or_else(|error| panic!("{name} works a second time: {error:?}"));
    assert_eq!(first, second, "{name} answers the same when it is called twice");
    second
}

/// What can never work says so, instead of being tried for ever.
async fn refused<T: Debug, F: Future<Output = Result<T, Error>>>(what: &str, verb: impl Fn() -> F) {
    match settle(verb).await {
        Err(Error::Permanent(why)) => assert!(!why.is_empty(), "{what} is refused with a reason"),
        other => panic!("{what} is refused as permanent, but the answer is {other:?}"),
    }
}

/// What a driver says it cannot do, it says again when asked to do it.
async fn unsupported<T: Debug, F: Future<Output = Result<T, Error>>>(what: &str, verb: impl Fn() -> F) {
    let answer = settle(verb).await;
    assert!(matches!(answer, Err(Error::Unsupported(_))), "{what} is unsupported, but the answer is {answer:?}");
}
