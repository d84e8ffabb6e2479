//! The network of the local driver on a real kernel. Every test has a machine of its own: a fresh network namespace that
//! plays the host, so that nothing of the real one is touched. Needs root; without it the tests say so and skip.

mod firewall;
mod flows;
mod frames;
mod learning;
mod machine;
mod outside;
mod probes;
mod sharing;
mod verbs;
