//! Writing one body to its data file: [`intake`] receives it, [`writer`] writes it beside the receiving task, [`draft`] is the
//! file that grows, and [`writeback`] asks the kernel to start writing early.

pub(super) mod draft;
pub(super) mod intake;

mod writeback;
mod writer;
