//! The HTTP side of the API: a folder per noun with a file per endpoint, and what they share.
//!
//! The way of a call: [`observe`] gives it an id, [`authenticate`] says who calls and how often, [`call`], [`query`] and
//! [`id`] read the input, the endpoint calls `control`, and an [`answer`] or a [`failure`] goes back.

pub(crate) mod address;
pub(crate) mod answer;
pub(crate) mod authenticate;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod failure;
pub(crate) mod host;
mod id;
pub(crate) mod limiter;
pub(crate) mod listing;
pub(crate) mod observe;
pub(crate) mod openapi;
pub(crate) mod query;
pub(crate) mod router;
pub(crate) mod table;

mod admin;
mod clusters;
mod health;
pub(crate) mod jobs;
mod limits;
mod object_storage;
pub(crate) mod remember;
mod requests;
mod ssh;
mod ssh_keys;
mod storage;
mod users;
