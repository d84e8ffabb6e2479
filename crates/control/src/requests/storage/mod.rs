//! The requests about volumes: a file per kind, and what attaching and detaching share.
//!
//! Start reading at [`create`] for the volume itself, and at [`attach`] for its way into a cluster.

pub(super) mod attach;
pub(super) mod create;
pub(super) mod destroy;
pub(super) mod detach;
pub(super) mod edit;
mod end_users;
mod undo_mounts;
