//! A client that loads an S3 server: HTTP/1.1 with keep-alive, SigV4 in the header, bodies that are not hashed.
//!
//! Usage: `s3bench ENDPOINT BUCKET REGION COMMAND`, with the keys in `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`:
//!
//! - `make` and `drop`: creates and deletes the bucket,
//! - `put SIZE CONNECTIONS COUNT SECONDS`: new keys, until as many are there or the time is up,
//! - `get SIZE CONNECTIONS KEYS SECONDS`: the first keys of such a put, again and again,
//! - `delete SIZE CONNECTIONS COUNT`: what such a put left,
//! - `fill CONNECTIONS COUNT`: tiny objects for a listing, in an order that is not that of their keys,
//! - `list COUNT REQUESTS SEED`: pages of 1,000 of these keys from random places.
//!
//! And `s3bench loopback SECONDS`: what one stream carries between two threads.
//!
//! A command prints one line of JSON, or says what went wrong and fails: a figure with errors in it is worth nothing.

mod client;
mod figures;
mod listing;
mod load;
mod loopback;

use std::process::ExitCode;
use std::str::FromStr;

use client::Target;
use load::{Verb, Work};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.expect("the runtime starts").block_on(command(&arguments)) {
        Ok(line) => println!("{line}"),
        Err(problem) => {
            eprintln!("s3bench {}: {problem}", arguments.join(" "));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

async fn command(arguments: &[&str]) -> Result<String, String> {
    if let ["loopback", seconds] = arguments {
        return Ok(loopback::run(number(seconds)?));
    }
    let [endpoint, bucket, region, command @ ..] = arguments else {
        return Err("usage: s3bench ENDPOINT BUCKET REGION COMMAND".into());
    };
    let target = Target::new(endpoint, bucket, region)?;
    match command {
        ["make"] => target.whole("PUT").await,
        ["drop"] => target.whole("DELETE").await,
        ["put", size, connections, count, seconds] => {
            let work = Work::new(Verb::Put, number(size)?, number(connections)?);
            load::run(&target, work.count(number(count)?).seconds(number(seconds)?)).await
        }
        ["get", size, connections, keys, seconds] => {
            let work = Work::new(Verb::Get, number(size)?, number(connections)?);
            load::run(&target, work.keys(number(keys)?).seconds(number(seconds)?)).await
        }
        ["delete", size, connections, count] => {
            let work = Work::new(Verb::Delete, number(size)?, number(connections)?);
            load::run(&target, work.count(number(count)?)).await
        }
        ["fill", connections, count] => listing::fill(&target, number(connections)?, number(count)?).await,
        ["list", count, requests, seed] => {
            listing::pages(&target, number(count)?, number(requests)?, number(seed)?).await
        }
        _ => Err("no such command".into()),
    }
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}
