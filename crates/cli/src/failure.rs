//! Why a command failed: one line for a person, and the exit code of the program.

use http::StatusCode;
use serde_json::Value;

/// The result of a command.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The exit codes of the program. They are documented, and scripts depend on them.
#[derive(Debug)]
pub struct ExitCodes;

impl ExitCodes {
    /// The command failed.
    pub const FAILED: u8 = 1;
    /// The command line or the request is not valid.
    pub const USAGE: u8 = 2;
    /// The named thing does not exist.
    pub const NOT_FOUND: u8 = 3;
    /// The state of the thing does not allow the command.
    pub const CONFLICT: u8 = 4;
    /// The user pressed Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: u8,
    message: String,
    /// The response of the engine, if the failure comes from the engine.
    body: Option<Value>,
    /// Whether a later try may succeed.
    is_temporary: bool,
}

impl Failure {
    /// A failure with a message that says what happened and what to do next.
    pub fn new(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::FAILED, message: message.into(), body: None, is_temporary: false }
    }

    /// A failure after which a later try may succeed.
    pub(crate) fn temporary(message: impl Into<String>) -> Self {
        Failure { is_temporary: true, ..Failure::new(message) }
    }

    /// Replaces the message.
    pub(crate) fn with_message(self, message: String) -> Self {
        Failure { message, ..self }
    }

    /// Appends a second fact to the message.
    pub(crate) fn with_addition(self, more: &str) -> Self {
        Failure { message: format!("{}; and {more}", self.message.trim_end_matches('.')), ..self }
    }

    /// Sets the body that `--json` prints.
    pub(crate) fn with_body(self, body: Value) -> Self {
        Failure { body: Some(body), ..self }
    }

    /// A failure of the form `what: error`.
    pub(crate) fn with_cause(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Failure::new(format!("{what}: {error}"))
    }

    /// The reader of standard output is gone. This ends the command but is not an error.
    pub(crate) fn reader_gone() -> Self {
        Failure { code: 0, ..Failure::new("standard output was closed by its reader") }
    }

    /// A command line that is not valid.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::USAGE, ..Failure::new(message) }
    }

    /// A name that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::NOT_FOUND, ..Failure::new(message) }
    }

    /// The user pressed Ctrl-C.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::INTERRUPTED, ..Failure::new(message) }
    }

    /// A refusal by the engine, with the engine's own message.
    pub(crate) fn refused(status: StatusCode, message: String, body: Value) -> Self {
        let code = match status {
            StatusCode::NOT_FOUND => ExitCodes::NOT_FOUND,
            StatusCode::CONFLICT => ExitCodes::CONFLICT,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => ExitCodes::USAGE,
            _ => ExitCodes::FAILED,
        };
        Failure { code, is_temporary: is_temporary(status), ..Failure::new(message).with_body(body) }
    }

    /// The exit code of the program.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Whether the reader of standard output is gone.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.code == 0
    }

    /// Whether a later try may succeed.
    pub(crate) fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// The response of the engine, if the failure comes from the engine.
    pub(crate) fn body(&self) -> Option<&Value> {
        self.body.as_ref()
    }
}

/// Whether a status says that the engine, or a proxy in front of it, is unavailable for the moment.
pub(crate) fn is_temporary(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of refusal has an exit code of its own.
    #[test]
    fn refusals_map_to_exit_codes() {
        let code = |status| Failure::refused(status, String::new(), Value::Null).code();
        assert_eq!(code(StatusCode::NOT_FOUND), 3);
        assert_eq!(code(StatusCode::CONFLICT), 4);
        assert_eq!(code(StatusCode::UNPROCESSABLE_ENTITY), 2);
        assert_eq!(code(StatusCode::UNAUTHORIZED), 1);
        assert_eq!(code(StatusCode::SERVICE_UNAVAILABLE), 1);
    }
}
