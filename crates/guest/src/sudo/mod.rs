//! `sudo` for images that have none: lets the user of an instance run programs as root, or as anybody, without a password.
//!
//! It runs as root for a caller whom it does not trust, so it is small, reads nothing that the caller can change, and knows
//! neither the network nor the rest of the guest. Start reading at [`main`]; `arguments` understands the command line,
//! `environment` decides what the program finds around it, and `run` becomes the other user.

mod arguments;
mod environment;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

/// Does what the command line says; returns only if no other program was run.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let outcome = match arguments::parse(arguments) {
        Ok(request) => run::run(request),
        Err(words) => Err(words),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("sudo: {words}");
            ExitCode::FAILURE
        }
    }
}
