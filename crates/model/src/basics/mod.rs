//! What every other part builds on: ids, names, time, money, the clock and the random bits, and the refusals of all
//! rules.

pub mod clock_jumps;
pub mod environment;
pub mod ids;
pub mod money;
pub mod names;
pub mod refused;
pub mod time;
