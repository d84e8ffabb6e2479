//! Bodies of calls: bounded, strict JSON, checked against the schema that the OpenAPI document shows.
//!
//! Any content type counts as JSON, as with FastAPI's clients. Start reading at [`Validators::parse`].

mod json;
mod pydantic;
mod read;
mod unknown_keys;
mod validate;

pub(crate) use read::read_body;
pub(crate) use validate::{Body, Parsed, Validators};
