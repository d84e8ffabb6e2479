//! The HTTP suite: everything through the router, on SQLite and on PostgreSQL, with the fake driver behind it.
//!
//! A folder per noun; `support/harness.rs` builds a world, `api/authorization.rs` calls every route. Tests on
//! PostgreSQL need the address of a superuser in `TARN_TEST_POSTGRES` and are skipped with a printed line without it.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue should panic, in shared functions too")]

mod accounts;
mod api;
mod clusters;
mod jobs;
mod network;
mod storage;
mod support;
