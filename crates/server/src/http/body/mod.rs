//! Bodies of calls: bounded, strict JSON, checked against the schema that the OpenAPI document shows.
//!
//! Any content type counts as JSON, as with FastAPI's clients. Start reading at [`Validators::parse`].

mod json;
mod read;
mod validate;
mod words;

pub(crate) use read::read;
pub(crate) use validate::{Body, Validators};
