//! The `tarn` binary: the composition root, the only place that builds things and the only one that knows the real clock,
//! real chance, the environment and signals.
//!
//! Start reading at [`commands`]; [`serve`] shows how the rooms of the house are put together.

mod admin;
mod belonging;
mod commands;
mod config;
mod data;
mod descriptors;
mod doctor;
mod environment;
mod failure;
mod guest;
mod logging;
mod machines;
mod metrics;
mod object_storage;
mod patience;
mod reconcile;
mod secret;
mod serve;
mod surroundings;
mod tls;

use clap::Parser;

fn main() -> std::process::ExitCode {
    // Before anything else: the helper starts a machine, and every millisecond of it is a millisecond of waiting for one.
    if std::env::args_os().nth(1).is_some_and(|command| command == machines::HELPER) {
        return tarn_driver::local::helper::main();
    }
    let cli = commands::Cli::parse();
    match commands::run(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("tarn: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}
