//! Removes a job: `forget` ends its attempts and removes everything of it, and the helper `remove_tree` deletes the
//! files.

pub(in crate::jobs) mod forget;
mod remove_tree;

pub use remove_tree::run_remove_helper;
