//! Authenticates the caller. This runs before every secured route, so that a missing or wrong key is refused before
//! anything else of the call is read.

use std::sync::Arc;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tarn_base::fair_share::GroupedUsedUp;
use tarn_control::Caller;

use crate::http::middleware::observe::CallRecord;
use crate::http::output::failure::Failure;
use crate::serve::ConnectionOfCall;
use crate::{App, Limits};

/// Finds the user of the key and applies the rate limit.
pub(crate) async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let token = bearer_token(request.headers()).ok_or_else(Failure::unauthenticated)?;
    let record = request.extensions().get::<Arc<CallRecord>>();
    let mut caller = app.control.authenticate_from(token, record.and_then(|record| record.address())).await?;
    if let Some(record) = record {
        caller = record.identify(caller);
    }
    app.shared.limiter.take_token(&caller.key).map_err(Failure::too_many)?;
    count_connection(&app, request.extensions().get(), &caller)?;
    if request.method().is_safe() && !request.body().is_end_stream() {
        let message = "this call takes no body; use the path and the query";
        return Err(Failure::invalid("unexpected_body", message));
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Counts the connection of a call for its caller and their organization.
pub(crate) fn count_connection(
    app: &App,
    connection: Option<&ConnectionOfCall>,
    caller: &Caller,
) -> Result<(), Failure> {
    let Some(ConnectionOfCall(connection)) = connection else { return Ok(()) };
    let assigned = connection.assign_to(&caller.user.owner(), &app.shared.connections);
    assigned.map_err(|used_up| too_many_connections(used_up, &app.shared.limits))
}

fn too_many_connections(used_up: GroupedUsedUp, limits: &Limits) -> Failure {
    let (subject, limit) = match used_up {
        GroupedUsedUp::Member => ("you have", limits.user_connections),
        GroupedUsedUp::Group | GroupedUsedUp::Total => {
            ("the users of your organization have", limits.organization_connections)
        }
    };
    let message = format!("{subject} {limit} connections open, which is the limit; close some");
    Failure::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", message)
}

/// Returns the API key of the `Authorization` header.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Takes the caller that [`authenticate`] stored. A route without that middleware refuses every call.
pub(crate) fn take_caller(parts: &mut Parts) -> Result<Caller, Failure> {
    parts.extensions.remove::<Caller>().ok_or_else(Failure::unauthenticated)
}
