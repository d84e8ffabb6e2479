//! Pulls of several tenants at a time: slow layers of one do not delay another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tarn_driver::Driver;

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, TestImage, digest, image};
use crate::local::test_host::{TIMEOUT, TestHost, with_test_host};

/// The rate at which slow layers are sent: faster than what counts as too slow, so that only their time can decide.
const RATE: usize = 1_300_000;

/// Slow layers of this size take half a minute.
const SIZE: usize = 40_000_000;

fn one_layer(n: u8, size: usize) -> TestImage {
    image(&[LayerBuilder::new().file("a", 0o644, &vec![n; size]).pack(Compression::Plain)])
}

/// Adds an image of one layer that is sent slowly until the rest is released.
fn add_slow(registry: &FaultyRegistry, n: u8, release: &Arc<AtomicBool>) -> String {
    let (name, made) = (format!("slow{n}"), one_layer(n, SIZE));
    let reference = registry.add(&name, &made);
    registry.respond(&format!("/v2/{name}/blobs/{}", digest(&made.blobs[1])), &made.blobs[1], |response| {
        (response.rate, response.is_released) = (Some(RATE), release.clone());
    });
    reference
}

async fn pull(host: &TestHost, reference: &str, share: &str) {
    let pulled = host.driver.ensure_image(reference, share, &ignore_progress);
    tokio::time::timeout(TIMEOUT, pulled).await.unwrap_or_else(|_| panic!("{reference} is not pulled")).unwrap();
}

/// Three slow layers of a tenant hold every place; pulls of another tenant and of the same one go through meanwhile, and
/// the slow ones end as well.
#[test]
fn slow_layers_of_one_tenant_delay_no_other() {
    with_test_host(async |host| {
        let (host, release) = (&*host, Arc::new(AtomicBool::new(false)));
        let (slow, quick) = (FaultyRegistry::start().await, FaultyRegistry::start().await);
        let slow_images = [1, 2, 3].map(|n| add_slow(&slow, n, &release));
        let (other, own) = (quick.add("other", &one_layer(8, 1000)), quick.add("own", &one_layer(9, 1000)));
        let (progress, ended) = (Mutex::new(vec![String::new(); 3]), AtomicUsize::new(0));
        let slow_pulls = slow_images.iter().enumerate().map(async |(index, reference)| {
            let record = |message| progress.lock().unwrap()[index] = message;
            host.driver.ensure_image(reference, "slow", &record).await.unwrap();
            ended.fetch_add(1, Ordering::Relaxed);
        });
        let quick_pulls = async {
            let is_begun = |message: &String| message.contains("of 40 MB") && !message.contains(": 0 of");
            while !progress.lock().unwrap().iter().all(is_begun) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            pull(host, &other, "quick").await;
            pull(host, &own, "slow").await;
            assert_eq!(ended.load(Ordering::Relaxed), 0, "the slow ones are still in progress");
            release.store(true, Ordering::Relaxed);
        };
        let all = async { tokio::join!(futures::future::join_all(slow_pulls), quick_pulls) };
        tokio::time::timeout(TIMEOUT * 3, all).await.expect("every pull ends");
        assert_eq!((ended.load(Ordering::Relaxed), host.layers().len()), (3, 5));
    });
}
