//! One suite for the store, on SQLite and on a real PostgreSQL.

mod concurrency;
mod durability;
mod nouns;
mod requests;
mod support;
