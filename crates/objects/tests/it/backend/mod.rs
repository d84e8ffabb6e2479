//! Object storage without HTTP, on both databases and real files.

mod accounts;
mod hangups;
mod keys;
mod random;
mod readers;
mod space;
pub(crate) mod support;
mod uploads;
