//! The parts of an installation, each brought into a backup and back: the database, the contents of objects, the
//! volumes and the master key.

pub(super) mod contents;
pub(super) mod database;
pub(super) mod postgres;
pub(super) mod sealed_key;
pub(super) mod volumes;
