//! Tests of object storage: `files` are the bytes on disk, `backend` the rules over the store without HTTP, and `s3`
//! the whole service as clients use it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod backend;
mod files;
mod s3;
