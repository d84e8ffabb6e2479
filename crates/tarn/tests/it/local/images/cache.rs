//! What is kept of images: shared, bounded, and right after any end of the engine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tarn_driver::local::ImageSettings;
use tarn_driver::{Driver, Error};

use super::false_registry::FalseRegistry;
use super::maker::{Made, Packing, Writing, digest, image};
use super::quiet;
use crate::local::machine::{PATIENCE, on_a_machine, on_a_machine_with, open};

/// An image with a layer of its own, of about a megabyte.
fn of(n: u8) -> Made {
    image(&[Writing::new().file("a", 0o644, &[n; 1 << 20]).pack(Packing::Plain)])
}

/// A registry, and a cache of so many bytes.
fn with_room_for(cache_bytes: u64) -> impl AsyncFnOnce() -> (FalseRegistry, ImageSettings) {
    async move || (FalseRegistry::start().await, ImageSettings { cache_bytes, ..ImageSettings::default() })
}

#[test]
fn pulls_of_the_same_image_share_the_work() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let reference = registry.add("a", &of(1));
        let pull = || machine.driver.ensure_image(&reference, &quiet);
        let (one, two, three) = tokio::join!(pull(), pull(), pull());
        assert_eq!(one.clone().unwrap(), two.unwrap());
        assert_eq!(one.unwrap(), three.unwrap());
        let asked = registry.asked.lock().unwrap().clone();
        let layer = digest(&of(1).blobs[1]);
        assert_eq!(asked.iter().filter(|path| path.ends_with(&layer)).count(), 1, "{asked:?}");
    });
}

#[test]
fn what_nobody_needs_goes_when_there_is_no_room_and_comes_again() {
    on_a_machine_with(with_room_for(3_500_000), async |machine, registry| {
        let mut names = Vec::new();
        for n in 1..=3 {
            names.push(machine.driver.ensure_image(&registry.add(&format!("i{n}"), &of(n)), &quiet).await.unwrap());
        }
        let used = machine.start_image(&names[0]).await;
        names.push(machine.driver.ensure_image(&registry.add("i4", &of(4)), &quiet).await.unwrap());
        assert_eq!(machine.layers().len(), 3);
        let second = digest(&of(2).blobs[1]).replace("sha256:", "");
        assert!(!machine.layers().contains(&second), "what was used least recently has gone");
        assert!(machine.seen(&used, "a").exists());
        // It comes again by itself for whoever needs it.
        machine.start_image(&names[1]).await;
        machine.start_image(&names[2]).await;
        assert!(machine.layers().contains(&second));
        // What would fit if others were not there waits for them to go.
        let packed = |bytes: &[u8]| Writing::new().file("a", 0o644, bytes).pack(Packing::Zstd);
        let late = registry.add("late", &image(&[packed(&[9; 1 << 20])]));
        let refused = machine.driver.ensure_image(&late, &quiet).await;
        let Err(Error::Retry(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("waits for space in the image cache"), "{why}");
        assert_eq!(machine.layers().len(), 3, "nothing is left of it");
        machine.driver.remove_instance(&used.id).await.unwrap();
        machine.driver.ensure_image(&late, &quiet).await.unwrap();
    });
}

#[test]
fn a_bomb_ends_where_there_is_no_more_room() {
    on_a_machine_with(with_room_for(10_000_000), async |machine, registry| {
        let bomb = image(&[Writing::new().file("a", 0o644, &vec![0; 64 << 20]).pack(Packing::Zstd)]);
        assert!(bomb.blobs[1].len() < 100_000);
        let refused = machine.driver.ensure_image(&registry.add("bomb", &bomb), &quiet).await;
        let Err(Error::Permanent(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("GB of the image cache"), "{why}");
        assert_eq!(machine.layers(), Vec::<String>::new());
    });
}

#[test]
fn a_pull_says_how_far_it_is_and_leaves_nothing_when_nobody_waits_for_it() {
    on_a_machine(async |machine| {
        let registry = FalseRegistry::start().await;
        let large = image(&[Writing::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Packing::Plain)]);
        let reference = registry.add("slow", &large);
        let path = format!("/v2/slow/blobs/{}", digest(&large.blobs[1]));
        registry.answer(&path, &large.blobs[1], |answer| answer.is_held = true);
        let said = Arc::new(Mutex::new(String::new()));
        let heard = said.clone();
        let tell = move |words: String| *heard.lock().unwrap() = words;
        let half = async {
            while !said.lock().unwrap().contains("3 of 6 MB, layer 1 of 1") {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            pulled = machine.driver.ensure_image(&reference, &tell) => panic!("it cannot end: {pulled:?}"),
            come = tokio::time::timeout(PATIENCE * 3, half) => come.expect("it says how far it is"),
        }
        assert!(said.lock().unwrap().starts_with("pulls 127.0.0.1:"), "{}", said.lock().unwrap());
        let gone = async {
            while !machine.layers().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE * 3, gone).await.expect("what was half there is gone");
        registry.answer(&path, &large.blobs[1], |_| ());
        assert!(machine.driver.ensure_image(&reference, &quiet).await.is_ok());
    });
}

#[test]
fn an_engine_that_died_in_the_middle_of_a_pull_leaves_nothing_that_is_not_swept() {
    on_a_machine(async |_| {
        let registry = FalseRegistry::start().await;
        let large = image(&[Writing::new().file("a", 0o644, &vec![5; 6 << 20]).pack(Packing::Plain)]);
        let reference = registry.add("slow", &large);
        let path = format!("/v2/slow/blobs/{}", digest(&large.blobs[1]));
        registry.answer(&path, &large.blobs[1], |answer| answer.is_held = true);
        let data = tempfile::tempdir().unwrap();
        let layers = data.path().join("images/containers/layers");
        let (own, wanted) = (data.path().to_owned(), reference.clone());
        // A runtime that is dropped takes all its tasks with it, as a killed process does, and nothing is cleared up.
        let engine = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let driver = runtime.block_on(open(&own)).unwrap();
            let (half, come) = std::sync::mpsc::channel();
            runtime.spawn(async move {
                let tell = move |words: String| {
                    if words.contains("3 of 6 MB") {
                        let _twice = half.send(());
                    }
                };
                driver.ensure_image(&wanted, &tell).await
            });
            come.recv_timeout(PATIENCE * 3).expect("it comes half");
            // And it has no threads any more: one that still had the driver would keep the next one out.
            runtime.shutdown_timeout(PATIENCE);
        });
        tokio::task::spawn_blocking(|| engine.join().unwrap()).await.unwrap();
        assert_eq!(crate::local::machine::names(&layers), ["next-0"], "something was left");
        registry.answer(&path, &large.blobs[1], |_| ());
        let driver = open(data.path()).await.unwrap();
        assert_eq!(crate::local::machine::names(&layers), Vec::<String>::new());
        assert!(driver.ensure_image(&reference, &quiet).await.is_ok());
        assert_eq!(crate::local::machine::names(&layers), [digest(&large.blobs[1]).replace("sha256:", "")]);
    });
}
