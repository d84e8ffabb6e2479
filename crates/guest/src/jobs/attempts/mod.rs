//! The attempts of a job: starting one, its state, and following it.
//!
//! Start reading at `run`, which serves an order. `start` writes what must be on disk and starts the supervisor
//! (`script` is what its shell executes), `attempt` is the state that the guest keeps, and `follow` reports it to the
//! engine.

pub(in crate::jobs) mod attempt;
pub(in crate::jobs) mod failure;
pub(in crate::jobs) mod follow;
pub(in crate::jobs) mod run;
mod script;
pub(in crate::jobs) mod start;
