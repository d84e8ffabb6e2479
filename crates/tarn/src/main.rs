//! The `tarn` binary: the composition root, the only place that builds things and the only one that knows the real clock,
//! real chance, the environment and signals.
//!
//! Start reading at [`commands`]; [`serve`] shows how the rooms of the house are put together.

mod admin;
mod commands;
mod config;
mod data;
mod environment;
mod failure;
mod logging;
mod metrics;
mod serve;
mod tls;

use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = commands::Cli::parse();
    match commands::run(cli) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("tarn: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}
