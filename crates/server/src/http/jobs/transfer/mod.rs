//! The endpoints that move the files of a job: `upload` and `file_list` bring them to the engine, `pull` and `output`
//! bring the outputs to the client.
//!
//! All of them except `pull` take no key; `links` signs their URLs and verifies the signatures.

pub(crate) mod file_list;
pub(crate) mod output;
pub(crate) mod pull;
pub(crate) mod upload;

pub(super) mod links;
mod range;
