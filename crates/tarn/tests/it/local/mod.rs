//! The local driver on this host, with the real program as its helper and with the real guest: the conformance suite of
//! all drivers, and what only a real host can show.
//!
//! Everything here needs root; without it each test prints that and passes. Start reading at `test_host`.

mod conformance;
mod end_reasons;
mod firewall;
mod gpus;
mod images;
mod isolation;
mod loopback_listener;
mod mounts;
mod restarts;
mod test_host;
mod volumes;
