//! The network of the local driver on a real kernel. Every test has its own host: a fresh network namespace, so that
//! nothing of the real host is touched. Needs root; without it the tests print so and skip.

mod firewall;
mod flows;
mod frames;
mod host;
mod learning;
mod methods;
mod outside;
mod probes;
mod sharing;
