//! The life of an instance: it is recorded, launched, observed, called and removed here.
//!
//! The record of an instance is written before anything is created for it and removed last, so everything that belongs
//! to it can be found again. Whether it runs is asked of the kernel each time.
//!
//! Start reading at `ensure`, then `launch` and `remove`.

mod claim;
pub(super) mod ensure;
pub(super) mod exit_marker;
pub(super) mod guest_binary;
pub(super) mod guest_calls;
mod launch;
pub(super) mod observe;
pub(super) mod record;
pub(super) mod remove;
pub(super) mod volume_mounts;
