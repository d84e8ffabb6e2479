//! The conformance suite that every driver has to pass; the tests of each driver run it.
//!
//! It is test support: it panics with a message where a driver violates its contract. It creates and removes real
//! objects through the driver, so give it a driver that manages nothing yet, with room for three small instances and
//! four gigabytes. Start reading at [`check`].

mod instances;
mod mounts;
mod volumes;

use std::fmt::Debug;
use std::time::Duration;

use tarn_model::Ids;
use tarn_model::capacity::Shape;
use tarn_model::ids::{ClusterId, InstanceId, VolumeId};

use crate::{Driver, Error, InstanceSpec, Observed, ObservedInstance, VolumeSpec};

/// How often a call may return [`Error::Retry`]: a driver under test may have faults injected.
const TRIES: u32 = 40;

/// Checks that the driver fulfils the contract of [`Driver`].
///
/// # Panics
///
/// When it does not, or when something exists at the start.
pub async fn check(driver: &dyn Driver, ids: &dyn Ids) {
    let tested = TestedDriver { driver, ids };
    assert_eq!(tested.observe().await, Observed::default(), "nothing may exist at the start");
    let inventory = tested.driver.inventory().await.expect("inventory answers");
    assert_eq!(tested.driver.inventory().await, Ok(inventory.clone()), "the inventory is the same when asked twice");
    instances::check_instances(&tested, &inventory).await;
    if driver.capabilities().volumes {
        volumes::check_volumes(&tested).await;
        mounts::check_mounts(&tested).await;
    } else {
        volumes::check_unsupported_volumes(&tested).await;
    }
    assert_eq!(tested.observe().await, Observed::default(), "nothing is left at the end");
}

/// The driver under test, and fresh ids for what it is asked to create.
struct TestedDriver<'a> {
    driver: &'a dyn Driver,
    ids: &'a dyn Ids,
}

impl TestedDriver<'_> {
    async fn observe(&self) -> Observed {
        retry_until_settled(|| self.driver.observe()).await.expect("observe answers")
    }

    /// Observes an instance, alone and among all; both must agree.
    async fn observe_one(&self, id: &InstanceId) -> Option<ObservedInstance> {
        let alone = retry_until_settled(|| self.driver.observe_instance(id)).await.expect("observe_instance answers");
        let whole = self.observe().await.instances.remove(id);
        assert_eq!(alone, whole, "observe_instance and observe agree on {id}");
        alone.map(sorted)
    }

    fn cluster(&self) -> ClusterId {
        ClusterId::fresh(self.ids)
    }

    /// Returns the spec of a small instance, the only one of a new cluster.
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
            share: "share".into(),
        }
    }

    fn volume(&self) -> VolumeSpec {
        VolumeSpec { id: VolumeId::fresh(self.ids), size_bytes: 1 << 30 }
    }

    async fn start(&self, spec: &InstanceSpec) -> ObservedInstance {
        sorted(call_twice("ensure_instance", || self.driver.ensure_instance(spec)).await)
    }

    async fn stop(&self, spec: &InstanceSpec) {
        call_twice("remove_instance", || self.driver.remove_instance(&spec.id)).await;
        assert_eq!(self.observe_one(&spec.id).await, None, "a removed instance is not observed");
    }

    async fn delete(&self, spec: &VolumeSpec) {
        call_twice("remove_volume", || self.driver.remove_volume(&spec.id)).await;
        let seen = retry_until_settled(|| self.driver.observe_volume(&spec.id)).await;
        assert_eq!(seen, Ok(None), "a removed volume is not observed");
        assert!(!self.observe().await.volumes.contains_key(&spec.id), "a removed volume is not among all");
    }
}

/// The order of mounts has no meaning.
fn sorted(mut instance: ObservedInstance) -> ObservedInstance {
    instance.volumes.sort();
    instance
}

/// Repeats a call until it returns something other than `Retry`.
async fn retry_until_settled<T, F: Future<Output = Result<T, Error>>>(call: impl Fn() -> F) -> Result<T, Error> {
    for _ in 1..TRIES {
        match call().await {
            Err(Error::Retry(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
            result => return result,
        }
    }
    call().await
}

/// Makes a call twice: a call that succeeds has to succeed again, with the same result.
async fn call_twice<T: PartialEq + Debug, F: Future<Output = Result<T, Error>>>(name: &str, call: impl Fn() -> F) -> T {
    let first = retry_until_settled(&call).await.unwrap_or_else(|error| panic!("{name} works: {error:?}"));
    let second =
        retry_until_settled(&call).await.unwrap_or_else(|error| panic!("{name} works a second time: {error:?}"));
    assert_eq!(first, second, "{name} answers the same when it is called twice");
    second
}

/// Expects a permanent error, so that the caller does not retry for ever.
async fn expect_refused<T: Debug, F: Future<Output = Result<T, Error>>>(what: &str, call: impl Fn() -> F) {
    match retry_until_settled(call).await {
        Err(Error::Permanent(why)) => assert!(!why.is_empty(), "{what} is refused with a reason"),
        other => panic!("{what} is refused as permanent, but the result is {other:?}"),
    }
}

/// Expects `Unsupported` for what the capabilities exclude.
async fn expect_unsupported<T: Debug, F: Future<Output = Result<T, Error>>>(what: &str, call: impl Fn() -> F) {
    let result = retry_until_settled(call).await;
    assert!(matches!(result, Err(Error::Unsupported(_))), "{what} is unsupported, but the result is {result:?}");
}
