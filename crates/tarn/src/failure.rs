//! Why a command failed, as a message for the person at the terminal.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;

/// A message that says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

/// Why the engine does not start.
#[derive(Debug)]
pub(crate) enum StartFailure {
    /// It starts by itself when this is over.
    Temporary(String),
    /// A person has to do something first.
    Final(Failure),
}

/// The result of a part of the start.
pub(crate) type StartResult<T> = std::result::Result<T, StartFailure>;

/// An error that may be over by itself.
pub(crate) trait MaybeTemporary: Display {
    /// Whether it is worth waiting.
    fn is_temporary(&self) -> bool;
}

impl MaybeTemporary for tarn_store::Error {
    fn is_temporary(&self) -> bool {
        matches!(self, tarn_store::Error::Unavailable(_))
    }
}

impl MaybeTemporary for tarn_control::Error {
    fn is_temporary(&self) -> bool {
        self.kind == tarn_control::Kind::Unavailable
    }
}

impl StartFailure {
    /// A failure of the form `what: error`.
    pub(crate) fn with_cause(what: impl Display, error: impl MaybeTemporary) -> Self {
        let message = format!("{what}: {error}");
        if error.is_temporary() { StartFailure::Temporary(message) } else { StartFailure::Final(Failure(message)) }
    }
}

impl From<Failure> for StartFailure {
    fn from(failure: Failure) -> Self {
        StartFailure::Final(failure)
    }
}

/// For commands that do not wait.
impl From<StartFailure> for Failure {
    fn from(failure: StartFailure) -> Self {
        match failure {
            StartFailure::Temporary(message) => Failure(message),
            StartFailure::Final(failure) => failure,
        }
    }
}

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of the form `what: error`.
    pub(crate) fn with_cause(what: impl Display, error: impl Display) -> Self {
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
