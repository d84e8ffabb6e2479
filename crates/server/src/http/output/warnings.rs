//! Adds warnings to a response. A response without any has no key for them, so that the schemas of the original API
//! hold.

use axum::body::{Body, to_bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use crate::http::output::failure::Failure;

/// Responses to calls with a body are far shorter than this.
const MAX_BYTES: usize = 16 << 20;

/// Adds the list `warnings` to a JSON object, and the warnings to the end of its `message`, if there is one: that is
/// what clients print.
pub(crate) async fn add_warnings(response: Response, warnings: &[String]) -> Response {
    let (mut parts, body) = response.into_parts();
    let text = match to_bytes(body, MAX_BYTES).await {
        Ok(text) => text,
        Err(error) => return Failure::internal(error).into_response(),
    };
    let text = match serde_json::from_slice::<Map<String, Value>>(&text) {
        Ok(mut object) => {
            if let Some(Value::String(message)) = object.get_mut("message") {
                for warning in warnings {
                    message.push_str("\nWarning: ");
                    message.push_str(warning);
                }
            }
            object.insert("warnings".to_owned(), warnings.into());
            parts.headers.remove(header::CONTENT_LENGTH);
            Value::Object(object).to_string().into()
        }
        // A response without a body, or another than JSON.
        Err(_) => text,
    };
    Response::from_parts(parts, Body::from(text))
}
