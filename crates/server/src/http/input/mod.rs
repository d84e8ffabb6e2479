//! How endpoints read a call: its body, its query, the id at the end of its path, and the address that the client used.
//!
//! Every part is an axum extractor that rejects bad input with a [`Failure`](crate::http::output::failure::Failure).
//! Start reading at `call.rs`.

pub(crate) mod address;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod id;
pub(crate) mod listing;
pub(crate) mod query;
