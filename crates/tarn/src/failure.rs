//! Why a command did not work, in words for the person at the terminal.

use std::io;
use std::net::SocketAddr;

/// A text that says what happened and what to do next.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failure(pub(crate) String);

/// What commands return.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure of something that was being done.
    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Failure(format!("{what}: {error}"))
    }

    /// An address that cannot be listened on, and the option that takes another one.
    pub(crate) fn listening(listen: SocketAddr, option: &str, error: &io::Error) -> Self {
        let todo = match error.kind() {
            io::ErrorKind::AddrInUse => "end what listens there, which `tarn doctor` names, or give",
            _ => "give",
        };
        Failure(format!("cannot listen on {listen}: {error}; {todo} another address with {option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_names_the_option() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = taken.local_addr().unwrap();
        let error = std::net::TcpListener::bind(listen).unwrap_err();
        let said = Failure::listening(listen, "--ssh-listen", &error).to_string();
        assert!(said.contains(&listen.to_string()) && said.contains("tarn doctor"), "{said}");
        assert!(said.ends_with("or give another address with --ssh-listen"), "{said}");
    }
}
