//! The wire types of the API: the JSON bodies of HTTP, with the schemas of the OpenAPI document.
//!
//! A file per noun; the nouns are the tags of the API. This crate knows only serde and utoipa: the server converts the
//! results of the control plane into these types, and clients read them. The limits of single fields are here, because
//! the server checks every body against these schemas. Start reading at [`clusters`].

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
