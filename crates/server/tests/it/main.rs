//! The HTTP suite: everything through the router, on SQLite and on PostgreSQL, with the fake driver behind it.
//!
//! A file per noun, as everywhere; `harness` builds a world, `authorization` walks every route. Tests on PostgreSQL need the
//! address of a superuser in `TARN_TEST_POSTGRES` and are skipped with a printed line without it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic, in helpers too")]

mod admin;
mod authorization;
mod bodies;
mod clusters;
mod errors;
mod gateway;
mod harness;
mod host;
mod idempotency;
mod inhabited;
mod jobs;
mod jobs_listen;
mod jobs_push;
mod limits;
mod lists;
mod loopback_proxy;
mod object_storage;
mod openapi;
mod redact;
mod requests;
mod serve;
mod sockets;
mod ssh_keys;
mod storage;
mod storage_failures;
mod storage_holders;
mod storage_refusals;
mod users;
