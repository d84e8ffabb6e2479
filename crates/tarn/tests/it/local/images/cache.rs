//! The cache of images: shared, bounded, and consistent after any end of the engine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tarn_driver::local::ImageSettings;
use tarn_driver::{Driver, Error};

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, TestImage, digest, image};
use crate::local::test_host::{TIMEOUT, loopback_images, open, with_test_host, with_test_host_for_images};

/// An image with its own layer of about a megabyte.
fn numbered_image(n: u8) -> TestImage {
    image(&[LayerBuilder::new().file("a", 0o644, &[n; 1 << 20]).pack(Compression::Plain)])
}

/// A registry, and a cache of so many bytes.
fn registry_with_cache_of(cache_bytes: u64) -> impl AsyncFnOnce() -> (FaultyRegistry, ImageSettings) {
    async move || (FaultyRegistry::start().await, ImageSettings { cache_bytes, ..loopback_images() })
}

/// Pulls of the same image share the work.
#[test]
fn pulls_of_same_image_share_work() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let reference = registry.add("a", &numbered_image(1));
        let pull = || host.driver.ensure_image(&reference, "share", &ignore_progress);
        let (one, two, three) = tokio::join!(pull(), pull(), pull());
        assert_eq!(one.clone().unwrap(), two.unwrap());
        assert_eq!(one.unwrap(), three.unwrap());
        let asked = registry.requests.lock().unwrap().clone();
        let layer = digest(&numbered_image(1).blobs[1]);
        assert_eq!(asked.iter().filter(|path| path.ends_with(&layer)).count(), 1, "{asked:?}");
    });
}

/// Unused layers are evicted when the cache is full, and pulled again when needed.
#[test]
fn unused_layers_are_evicted_and_pulled_again() {
    with_test_host_for_images(registry_with_cache_of(3_500_000), async |host, registry| {
        let mut names = Vec::new();
        for n in 1..=3 {
            names.push(
                host.driver
                    .ensure_image(&registry.add(&format!("i{n}"), &numbered_image(n)), "share", &ignore_progress)
                    .await
                    .unwrap(),
            );
        }
        let used = host.start_image(&names[0]).await;
        names.push(
            host.driver.ensure_image(&registry.add("i4", &numbered_image(4)), "share", &ignore_progress).await.unwrap(),
        );
        assert_eq!(host.layers().len(), 3);
        let second = digest(&numbered_image(2).blobs[1]).replace("sha256:", "");
        assert!(!host.layers().contains(&second), "what was used least recently has gone");
        assert!(host.path_inside(&used, "a").exists());
        // It is pulled again for an instance that needs it.
        host.start_image(&names[1]).await;
        host.start_image(&names[2]).await;
        assert!(host.layers().contains(&second));
        // A pull that would fit if other layers were unused waits for them.
        let packed = |bytes: &[u8]| LayerBuilder::new().file("a", 0o644, bytes).pack(Compression::Zstd);
        let late = registry.add("late", &image(&[packed(&[9; 1 << 20])]));
        let refused = host.driver.ensure_image(&late, "share", &ignore_progress).await;
        let Err(Error::Retry(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("waits for space in the image cache"), "{why}");
        assert_eq!(host.layers().len(), 3, "nothing is left of it");
        host.driver.remove_instance(&used.id).await.unwrap();
        host.driver.ensure_image(&late, "share", &ignore_progress).await.unwrap();
    });
}

/// A decompression bomb is refused when the cache is full.
#[test]
fn decompression_bomb_is_refused() {
    with_test_host_for_images(registry_with_cache_of(10_000_000), async |host, registry| {
        let bomb = image(&[LayerBuilder::new().file("a", 0o644, &vec![0; 64 << 20]).pack(Compression::Zstd)]);
        assert!(bomb.blobs[1].len() < 100_000);
        let refused = host.driver.ensure_image(&registry.add("bomb", &bomb), "share", &ignore_progress).await;
        let Err(Error::Permanent(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("GB of the image cache"), "{why}");
        assert_eq!(host.layers(), Vec::<String>::new());
    });
}

/// A pull reports its progress and leaves nothing behind when it is cancelled.
#[test]
fn cancelled_pull_leaves_nothing() {
    with_test_host(async |host| {
        let registry = FaultyRegistry::start().await;
        let large = image(&[LayerBuilder::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Compression::Plain)]);
        let reference = registry.add("slow", &large);
        let path = format!("/v2/slow/blobs/{}", digest(&large.blobs[1]));
        registry.respond(&path, &large.blobs[1], |response| response.is_held = true);
        let progress = Arc::new(Mutex::new(String::new()));
        let recorded = progress.clone();
        let record = move |message: String| *recorded.lock().unwrap() = message;
        let half = async {
            while !progress.lock().unwrap().contains("3 of 6 MB, layer 1 of 1") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            pulled = host.driver.ensure_image(&reference, "share", &record) => panic!("it cannot end: {pulled:?}"),
            come = tokio::time::timeout(TIMEOUT * 3, half) => come.expect("it says how far it is"),
        }
        assert!(progress.lock().unwrap().starts_with("pulls 127.0.0.1:"), "{}", progress.lock().unwrap());
        let gone = async {
            while !host.layers().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(TIMEOUT * 3, gone).await.expect("what was half there is gone");
        registry.respond(&path, &large.blobs[1], |_| ());
        assert!(host.driver.ensure_image(&reference, "share", &ignore_progress).await.is_ok());
    });
}

/// What an engine that died during a pull leaves is swept at the next start.
#[test]
fn interrupted_pull_is_swept_at_next_start() {
    with_test_host(async |_| {
        let registry = FaultyRegistry::start().await;
        let large = image(&[LayerBuilder::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Compression::Plain)]);
        let reference = registry.add("slow", &large);
        let path = format!("/v2/slow/blobs/{}", digest(&large.blobs[1]));
        registry.respond(&path, &large.blobs[1], |response| response.is_held = true);
        let data = tempfile::tempdir().unwrap();
        let layers = data.path().join("images/containers/layers");
        let (own, wanted) = (data.path().to_owned(), reference.clone());
        // A dropped runtime ends all its tasks, as a killed process does, and nothing is cleaned up.
        let engine = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let driver = runtime.block_on(open(&own)).unwrap();
            let (half, come) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                let record = move |message: String| {
                    if message.contains("3 of 6 MB") {
                        let _twice = half.send(());
                    }
                };
                driver.ensure_image(&wanted, "share", &record).await
            });
            come.recv_timeout(TIMEOUT * 3).expect("it comes half");
            // It also has no threads left: one that still held the driver would keep the next one out.
            runtime.shutdown_timeout(TIMEOUT);
        });
        tokio::task::spawn_blocking(|| engine.join().unwrap()).await.unwrap();
        assert_eq!(crate::local::test_host::entry_names(&layers), ["next-0"], "something was left");
        registry.respond(&path, &large.blobs[1], |_| ());
        let driver = open(data.path()).await.unwrap();
        assert_eq!(crate::local::test_host::entry_names(&layers), Vec::<String>::new());
        assert!(driver.ensure_image(&reference, "share", &ignore_progress).await.is_ok());
        assert_eq!(crate::local::test_host::entry_names(&layers), [digest(&large.blobs[1]).replace("sha256:", "")]);
    });
}
