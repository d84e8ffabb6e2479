//! The health endpoints: one for probes, and one that clients call before every command. They have the tag `system`.

use axum::extract::State;
use tarn_api::health::{HealthRequest, HealthzResponse, MessageResponse};

use crate::App;
use crate::http::input::body::Body;
use crate::http::input::call::Call;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::waiting::waiting_failure;

/// Health of the engine
///
/// Needs no key. Responds 503 within two seconds when the database is not available, and while the engine waits for it
/// or for space on its disk.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "system",
    responses((status = 200, description = "The engine is healthy", body = HealthzResponse)),
    security(()),
)]
pub(crate) async fn healthz(State(app): State<App>) -> EndpointResult<HealthzResponse> {
    if let Some(reason) = app.waiting_reason() {
        return Err(waiting_failure(&reason));
    }
    app.control.ping().await?;
    Ok(JsonResponse::ok(HealthzResponse { status: "ok".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }))
}

impl Body for HealthRequest {
    // Clients print the message before the output of every command, and what a newer one adds here changes nothing.
    const REPORTS_UNKNOWN_KEYS: bool = false;
}

/// The oldest version of `tp` whose commands this API serves. Those before it used WebSockets that do not exist here.
const OLDEST_CLIENT: [u32; 3] = [0, 0, 7];

/// Check a client
///
/// The command-line client calls it before every command and prints the message, if there is one. A client that is too
/// old for this engine is told how to upgrade.
#[utoipa::path(
    post,
    path = "/health",
    operation_id = "health",
    tag = "system",
    request_body = HealthRequest,
    responses((status = 200, description = "The client may continue", body = MessageResponse)),
)]
pub(crate) async fn check_client(call: Call<HealthRequest>) -> EndpointResult<MessageResponse> {
    let version = call.body.package_version.as_deref().filter(|version| is_too_old(version));
    let message = version.map(|version| {
        format!(
            "tp {} is too old for this engine, and some of its commands fail. Upgrade it to {} or newer: \
             pip install --upgrade tensorpool",
            tarn_base::plain(version, 20),
            OLDEST_CLIENT.map(|number| number.to_string()).join("."),
        )
    });
    Ok(JsonResponse::ok(MessageResponse { message }))
}

/// Returns whether a version of `tp` is one whose paths and bodies this API no longer has. A version that is not a
/// release, such as `unknown`, is not.
fn is_too_old(version: &str) -> bool {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    numbers.is_some_and(|numbers| numbers.as_slice() < OLDEST_CLIENT.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_oldest_are_too_old() {
        for version in ["0.0.6", "0.0", "0.0.0", "0.0.6.9"] {
            assert!(is_too_old(version), "{version}");
        }
        for version in ["0.0.7", "0.0.10", "0.1.0", "1.0", "0.2.0", "unknown", "", "0.0.7rc1", "0.0.99999999999"] {
            assert!(!is_too_old(version), "{version}");
        }
    }
}
