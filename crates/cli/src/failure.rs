//! Why a command did not work: a line for a person, and the code that the program ends with.

use http::StatusCode;
use serde_json::Value;

/// What commands return.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The codes that the program ends with. They are documented, and scripts depend on them.
#[derive(Debug)]
pub struct ExitCodes;

impl ExitCodes {
    /// It did not work.
    pub const FAILED: u8 = 1;
    /// It was not asked for in the right way.
    pub const USAGE: u8 = 2;
    /// There is no such thing.
    pub const NOT_FOUND: u8 = 3;
    /// The state of something does not allow it.
    pub const CONFLICT: u8 = 4;
    /// Somebody pressed Ctrl-C.
    pub const INTERRUPTED: u8 = 130;
}

/// Why it did not work.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    code: u8,
    message: String,
    /// What the engine answered, if it was the engine's own answer.
    body: Option<Value>,
    /// Whether it may be over by itself in a while.
    is_passing: bool,
}

impl Failure {
    /// A failure in words that say what to do next.
    pub fn new(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::FAILED, message: message.into(), body: None, is_passing: false }
    }

    /// The same, which may be over by itself in a while.
    pub(crate) fn passing(message: impl Into<String>) -> Self {
        Failure { is_passing: true, ..Failure::new(message) }
    }

    /// The same in other words.
    pub(crate) fn saying(self, message: String) -> Self {
        Failure { message, ..self }
    }

    /// The same, and something else.
    pub(crate) fn and(self, more: &str) -> Self {
        Failure { message: format!("{}; and {more}", self.message.trim_end_matches('.')), ..self }
    }

    /// The same, with what a program shall read of it.
    pub(crate) fn with_body(self, body: Value) -> Self {
        Failure { body: Some(body), ..self }
    }

    /// Something that was being done, and the error.
    pub(crate) fn doing(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Failure::new(format!("{what}: {error}"))
    }

    /// Nobody wants to read more, which is an end but no failure.
    pub(crate) fn enough() -> Self {
        Failure { code: 0, ..Failure::new("nobody reads what is printed") }
    }

    /// A command that was not given in the right way.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::USAGE, ..Failure::new(message) }
    }

    /// Nothing goes by that name.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::NOT_FOUND, ..Failure::new(message) }
    }

    /// Somebody does not want to wait any longer.
    pub(crate) fn interrupted(message: impl Into<String>) -> Self {
        Failure { code: ExitCodes::INTERRUPTED, ..Failure::new(message) }
    }

    /// What the engine refuses, in its own words.
    pub(crate) fn refused(status: StatusCode, message: String, body: Value) -> Self {
        let code = match status {
            StatusCode::NOT_FOUND => ExitCodes::NOT_FOUND,
            StatusCode::CONFLICT => ExitCodes::CONFLICT,
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => ExitCodes::USAGE,
            _ => ExitCodes::FAILED,
        };
        Failure { code, is_passing: is_passing(status), ..Failure::new(message).with_body(body) }
    }

    /// The code that the program ends with.
    pub fn code(&self) -> u8 {
        self.code
    }

    /// Whether it only says that nobody wants to read more.
    pub(crate) fn is_enough(&self) -> bool {
        self.code == 0
    }

    /// Whether it is worth to try it again in a while.
    pub(crate) fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// What the engine answered.
    pub(crate) fn body(&self) -> Option<&Value> {
        self.body.as_ref()
    }
}

/// Whether an answer says that the engine is not there at the moment: itself, or somebody before it.
pub(crate) fn is_passing(status: StatusCode) -> bool {
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

    #[test]
    fn what_the_engine_refuses_has_a_code_of_its_own() {
        let code = |status| Failure::refused(status, String::new(), Value::Null).code();
        assert_eq!(code(StatusCode::NOT_FOUND), 3);
        assert_eq!(code(StatusCode::CONFLICT), 4);
        assert_eq!(code(StatusCode::UNPROCESSABLE_ENTITY), 2);
        assert_eq!(code(StatusCode::UNAUTHORIZED), 1);
        assert_eq!(code(StatusCode::SERVICE_UNAVAILABLE), 1);
    }
}
