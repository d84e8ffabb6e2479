//! What a registry responded: read with a limit, and told apart only where a registry responded.
//!
//! Users name the hosts that are called, and see what became of the call. Whether a port is closed, or what a server
//! that is no registry responds, is not theirs to know: only the response of a registry is explained to them.

use reqwest::header::HeaderMap;
use reqwest::{Response, StatusCode};
use serde::Deserialize;

use super::http_clients::NotPublic;

/// The maximum size of the body of an error.
const MAX_ERROR: u64 = 64 << 10;

/// The header by which registries identify themselves.
const API_VERSION: &str = "docker-distribution-api-version";

/// Why a registry did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RegistryError {
    /// A host, with its port, is neither public nor listed by the operator.
    NotPublic(String),
    /// It does not respond.
    Unreachable(String),
    /// It reports a temporary failure, by this status.
    Unavailable(u16),
    /// It requires a login, and this engine has none or cannot use it.
    Unauthorized,
    /// It rejects the login of this engine.
    LoginRejected,
    /// It accepts the login, which has no access to what was requested; many registries respond the same for what does
    /// not exist.
    AccessDenied,
    /// It does not have what was requested.
    NotFound,
    /// It responds in a way that no registry should.
    Unexpected(String),
}

impl RegistryError {
    /// Returns whether another try may succeed. A refused host is tried as often as a closed port, so that the time
    /// that it takes does not tell them apart.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, RegistryError::NotPublic(_) | RegistryError::Unreachable(_) | RegistryError::Unavailable(_))
    }
}

/// Returns whether a response identifies itself as that of a registry.
pub(super) fn is_of_registry(headers: &HeaderMap) -> bool {
    headers.get(API_VERSION).is_some_and(|version| version.as_bytes().starts_with(b"registry/2"))
}

/// Returns a successful response, or what its failure means. Unless every server is trusted to be a registry, the
/// response has to show that it is one.
pub(super) async fn check_response(response: Response, is_trusted: bool) -> Result<Response, RegistryError> {
    let status = response.status();
    if matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
        return Ok(response);
    }
    let is_registry = is_trusted
        || is_of_registry(response.headers())
        || read_body(response, MAX_ERROR).await.is_ok_and(|body| is_error_of_registry(&body));
    Err(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if is_registry => RegistryError::Unauthorized,
        StatusCode::NOT_FOUND if is_registry => RegistryError::NotFound,
        status if is_registry && is_temporary(status) => RegistryError::Unavailable(status.as_u16()),
        status if is_temporary(status) => {
            RegistryError::Unreachable(format!("it responds with status {}, not as a registry", status.as_u16()))
        }
        status => RegistryError::Unexpected(format!("status {}", status.as_u16())),
    })
}

fn is_temporary(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// Returns whether the body of an error has the form that the specification of registries demands.
fn is_error_of_registry(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        code: String,
    }
    let is_code = |entry: &Entry| {
        !entry.code.is_empty() && entry.code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    };
    serde_json::from_slice::<Errors>(body)
        .is_ok_and(|found| !found.errors.is_empty() && found.errors.iter().all(is_code))
}

/// Explains a request to a host without a response.
pub(super) fn request_error(host: String, error: &reqwest::Error) -> RegistryError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(here) = cause {
        if here.is::<NotPublic>() {
            return RegistryError::NotPublic(host);
        }
        cause = here.source();
    }
    RegistryError::Unreachable(format!("{host}: {}", root_cause(error)))
}

/// Reads a whole response up to a maximum size.
pub(super) async fn read_body(mut response: Response, most: u64) -> Result<Vec<u8>, RegistryError> {
    let mut text = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| RegistryError::Unreachable(root_cause(&error)))? {
        text.extend_from_slice(&piece);
        if text.len() as u64 > most {
            return Err(RegistryError::Unexpected("a document that is too long".into()));
        }
    }
    Ok(text)
}

/// Returns the innermost cause, which is the most specific.
pub(in crate::local::images) fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_registries_are_recognized() {
        for (body, expected) in [
            (r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"tag":"x"}}]}"#, true),
            (r#"{"errors":[{"code":"DENIED"},{"code":"UNAUTHORIZED"}]}"#, true),
            (r#"{"errors":[]}"#, false),
            (r#"{"errors":[{"code":404}]}"#, false),
            (r#"{"errors":[{"code":"not found"}]}"#, false),
            (r#"{"error":"not found"}"#, false),
            ("<html>Not Found</html>", false),
            ("", false),
        ] {
            assert_eq!(is_error_of_registry(body.as_bytes()), expected, "{body}");
        }
    }
}
