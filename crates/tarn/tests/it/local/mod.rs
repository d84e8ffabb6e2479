//! The local driver on this machine, through the real program as its helper and with the real guest: one conformance suite for
//! all drivers, and what only real machines can show.
//!
//! Everything here needs root; without it each test says so and passes. Start reading at `machine`.

mod conformance;
mod ends;
mod firewall;
mod gpus;
mod images;
mod inside;
mod isolation;
mod life;
mod machine;
mod mounts;
mod volumes;
