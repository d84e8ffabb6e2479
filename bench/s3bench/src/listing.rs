//! Many keys in one bucket, and pages of them.

use std::time::Instant;

use bytes::Bytes;

use crate::client::{Call, Client, Target};
use crate::figures;
use crate::load::{self, Verb, Work};

/// What S3 gives at most at once.
const PAGE: usize = 1000;
const BYTES: usize = 16;
/// A prime, so that its multiples visit every number below a count that it does not divide.
const STRIDE: usize = 7_368_787;

/// Puts `count` tiny objects. Their order is not that of their keys, because an index is seldom filled from its left.
pub async fn fill(target: &Target, connections: usize, count: usize) -> Result<String, String> {
    let work = Work::new(Verb::Put, BYTES, connections).count(count);
    load::run(target, work.named(move |number| name(number * STRIDE % count))).await
}

/// Lists full pages behind random keys, one after the other.
pub async fn pages(target: &Target, count: usize, requests: usize, seed: u64) -> Result<String, String> {
    let places = count.checked_sub(PAGE + 1).filter(|places| *places > 0).ok_or("there are too few keys for a page")?;
    let mut client = Client::new(target.clone()).await?;
    let (mut state, mut milliseconds, began) = (seed.max(1), Vec::new(), Instant::now());
    for _ in 0..requests {
        state = load::scramble(state);
        let place = state as usize % places;
        let query = format!("list-type=2&max-keys={PAGE}&start-after={}", name(place));
        let call = Call { method: "GET", path: format!("/{}", target.bucket), query, body: Bytes::new() };
        let (started, mut page) = (Instant::now(), Vec::new());
        client.send(&call, |piece| page.extend_from_slice(piece)).await?;
        milliseconds.push(started.elapsed().as_secs_f64() * 1e3);
        check(&String::from_utf8_lossy(&page), place)?;
    }
    figures::line(milliseconds, began.elapsed().as_secs_f64())
}

/// A page holds exactly the keys behind its start, in their order.
fn check(page: &str, place: usize) -> Result<(), String> {
    let keys: Vec<&str> =
        page.split("<Key>").skip(1).map(|rest| rest.split_once('<').map_or(rest, |(key, _)| key)).collect();
    let right = keys.len() == PAGE && keys.iter().zip(place + 1..).all(|(key, number)| *key == name(number));
    if right { Ok(()) } else { Err(format!("the page behind {} has {} keys, or wrong ones", name(place), keys.len())) }
}

fn name(number: usize) -> String {
    format!("list-{number:09}")
}
