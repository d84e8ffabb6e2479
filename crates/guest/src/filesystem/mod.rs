//! Reading and writing files that the user or an image may have tampered with.
//!
//! `bounded_read` limits what is read. `guarded_files` replaces files atomically and follows no links of the user.

mod bounded_read;
mod guarded_files;

pub(crate) use bounded_read::read_bounded;
pub(crate) use guarded_files::{
    Owner, open_directory, open_or_create_below, open_private_directory, open_system_directory, read_file, replace_file,
};
