//! The life of an instance: it is recorded, launched, observed, called and removed here.
//!
//! The record of an instance is written before anything is created for it and removed last, so everything that belongs
//! to it can be found again. Whether it runs is asked of the kernel each time.
//!
//! Start reading at `ensure`, then `launch` and `remove`.

pub(super) mod ensure;
pub(super) mod guest_calls;
pub(super) mod launch;
pub(super) mod observe;
pub(super) mod record;
pub(super) mod remove;
pub(super) mod volume_mounts;
