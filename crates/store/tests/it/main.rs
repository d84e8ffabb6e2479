//! One suite for the store, on SQLite and on a real PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod concurrency;
mod counts;
mod durability;
mod examine;
mod gpus;
mod hanging_server;
mod jobs;
mod keys;
mod limits;
mod line;
mod migrations;
mod nouns;
mod objects;
mod query_plans;
mod requests;
mod schema_guard;
mod support;
mod transfer;
