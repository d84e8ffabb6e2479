//! The HTTP side of the API: a file or a folder per noun, with the input, the output and the middleware that they
//! share.
//!
//! A call passes through [`middleware`], which gives it an id and finds its caller. [`input`] reads its body, query and
//! path, the endpoint calls `control`, and [`output`] renders the response or the failure. Start reading at [`router`].

pub(crate) mod input;
pub(crate) mod middleware;
pub(crate) mod openapi;
pub(crate) mod output;
pub(crate) mod router;
pub(crate) mod waiting;

mod admin;
mod clusters;
mod health;
mod host;
pub(crate) mod jobs;
mod limits;
mod object_storage;
mod requests;
mod ssh;
mod ssh_keys;
mod storage;
mod users;
