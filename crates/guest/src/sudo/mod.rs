//! `sudo` for images that have none: lets the user of an instance run programs as root, or as any other user, without a
//! password.
//!
//! It runs as root for a caller that it does not trust, so it is small, reads nothing that the caller can change, and
//! knows neither the network nor the rest of the guest. Start reading at [`run_sudo`]; `arguments` parses the command
//! line, `environment` builds the variables of the program, and `execute` becomes the other user.

mod arguments;
mod environment;
mod execute;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs `sudo` with a command line; returns only if no other program was run.
pub fn run_sudo(arguments: &[OsString]) -> ExitCode {
    let outcome = match arguments::parse_arguments(arguments) {
        Ok(request) => execute::execute_request(request),
        Err(message) => Err(message),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("sudo: {message}");
            ExitCode::FAILURE
        }
    }
}
