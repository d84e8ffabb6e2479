//! Why a command failed, as a message for the person at the terminal.

use std::io;
use std::net::SocketAddr;

/// A message that says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of the form `what: error`.
    pub(crate) fn with_cause(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Failure(format!("{what}: {error}"))
    }

    /// The failure to listen on an address, with the option that sets another one.
    pub(crate) fn cannot_listen(listen: SocketAddr, option: &str, error: &io::Error) -> Self {
        let todo = match error.kind() {
            io::ErrorKind::AddrInUse => "stop the program that listens there, which `tarn doctor` names, or give",
            _ => "give",
        };
        Failure(format!("cannot listen on {listen}: {error}; {todo} another address with {option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_port_names_the_option() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = taken.local_addr().unwrap();
        let error = std::net::TcpListener::bind(listen).unwrap_err();
        let said = Failure::cannot_listen(listen, "--ssh-listen", &error).to_string();
        assert!(said.contains(&listen.to_string()) && said.contains("tarn doctor"), "{said}");
        assert!(said.ends_with("or give another address with --ssh-listen"), "{said}");
    }
}
