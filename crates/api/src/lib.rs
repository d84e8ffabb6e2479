//! The wire types of the API: what goes over HTTP as JSON, with the schemas that the OpenAPI document is made of.
//!
//! A file per noun, the nouns being the API's tags. This crate knows serde and utoipa and nobody else: the server turns what
//! the control plane says into these types, and clients read them. Limits that a single field has stand here, because the
//! server checks every body against these schemas. Start reading at [`clusters`].

pub mod admin;
pub mod clusters;
pub mod errors;
pub mod health;
pub mod host;
pub mod jobs;
pub mod object_storage;
pub mod requests;
pub mod ssh;
pub mod ssh_keys;
pub mod storage;
pub mod users;
