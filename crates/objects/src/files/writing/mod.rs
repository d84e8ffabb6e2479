//! Writing one body to its data file.
//!
//! [`intake`] receives the body, [`writer`] writes it beside the receiving task, [`draft`] is the growing file, and
//! [`writeback`] asks the kernel to start writing early. Start reading at [`intake`].

pub(super) mod draft;
pub(super) mod intake;

mod writeback;
mod writer;
