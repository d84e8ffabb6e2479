//! Object storage without HTTP, on both databases and real files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod accounts;
mod hangups;
mod random;
mod readers;
mod space;
mod support;
mod uploads;
