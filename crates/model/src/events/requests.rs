//! The events of requests.

use crate::requests::RequestType;

verbs! {
    /// How a request ended.
    RequestEvent {
        /// It was completed.
        "request.completed" Completed {
            #[serde(rename = "type")] kind: RequestType,
            object: String,
            message: Option<String>,
        }
        /// It failed and was undone as far as possible, or was cancelled.
        "request.failed" Failed {
            #[serde(rename = "type")] kind: RequestType,
            object: String,
            message: Option<String>,
        }
    }
}
