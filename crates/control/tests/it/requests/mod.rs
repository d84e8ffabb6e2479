//! Durable requests: every step under every fault, races, and idempotent calls.

mod clock_jumps;
mod idempotency;
mod older_steps;
mod races;
mod step_matrix;
mod unchanged;
