//! Object storage without HTTP, on both databases and real files.

mod accounts;
mod bucket_access;
mod hangups;
mod keys;
mod lifecycle;
mod random;
mod readers;
mod space;
pub(crate) mod support;
mod uploads;
