//! The `tarn` binary: the composition root, and the only crate that uses the real clock, real randomness, environment
//! variables and signals.
//!
//! Start reading at [`commands`]; [`serve`] shows how the other crates are put together.

mod admin;
mod backup;
mod commands;
mod config;
mod data;
mod doctor;
mod environment;
mod failure;
mod migrate;
mod process_environment;
mod serve;

use clap::Parser;

fn main() -> std::process::ExitCode {
    // Before anything else: the helper starts an instance, and its start-up time adds to every start of an instance.
    if std::env::args_os().nth(1).is_some_and(|command| command == serve::startup::driver::HELPER) {
        return tarn_driver::local::helper::main();
    }
    let cli = commands::Cli::parse();
    match commands::run_cli(cli) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("tarn: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}
