//! The OpenAPI document: collected from the endpoints, then converted to the style of FastAPI, because clients of the
//! original API were generated from that style. It contains the seed operations verbatim.

mod ids;
mod style;

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use serde_json::Value;
use tarn_api::errors::{ErrorBody, HTTPValidationError, ValidationError};
use tarn_api::ssh::SystemType;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder};

use super::router::documented_routes;

/// The seed operations; their error responses have no schema there, and so neither here.
const SEED_OPERATIONS: [&str; 3] = ["storage_destroy", "cluster_destroy_cluster__cluster__delete", "storage_attach"];

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let (_, collected) = documented_routes().split_for_parts();
    let mut document = serde_json::to_value(collected).expect("the document serializes as JSON");
    style::apply_fastapi_style(&mut document, &SEED_OPERATIONS);
    ids::describe_ids(&mut document, &SEED_OPERATIONS);
    document
});

/// Returns the document; it is always the same, in the same order.
pub fn openapi() -> Value {
    DOCUMENT.clone()
}

/// Returns the document without a copy.
pub(crate) fn openapi_document() -> &'static Value {
    &DOCUMENT
}

/// GET /openapi.json
pub(crate) async fn serve_openapi() -> impl IntoResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| DOCUMENT.to_string());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// Returns the document without its operations.
pub(crate) fn base_document() -> OpenApi {
    let tags = TAGS.map(|(name, text)| TagBuilder::new().name(name).description(Some(text)).build());
    // The schemas of bodies are collected from the operations; those of errors and parameters are not.
    let components = ComponentsBuilder::new()
        .schema_from::<ErrorBody>()
        .schema_from::<HTTPValidationError>()
        .schema_from::<ValidationError>()
        .schema_from::<SystemType>()
        .security_scheme("HTTPBearer", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    OpenApiBuilder::new()
        .info(InfoBuilder::new().title("TensorPool API").version("0.1.0").description(Some(DESCRIPTION)).build())
        .tags(Some(tags))
        .components(Some(components.build()))
        .build()
}

const DESCRIPTION: &str = "\
TensorPool API

All API endpoints (except `/healthz`) require authentication using your TensorPool API key.

### For REST Endpoints

Include your API key in the `Authorization` header as a Bearer token:

```bash
Authorization: Bearer YOUR_TENSORPOOL_KEY
```
### For WebSocket Endpoints

Send your API key as the first message in JSON format:

```json
{\"TENSORPOOL_KEY\": \"YOUR_TENSORPOOL_KEY\"}
```

### Repeating a call

Any call that changes something may carry the header `Idempotency-Key` (1 to 255 visible ASCII characters, otherwise 400). \
The same key with the same call within 24 hours gets the same response and changes nothing again; the same key with another \
call is 409.

### Unknown keys

The operations of the original API ignore keys of a body that they do not know. The response then has a list `warnings` \
with a sentence for each (at most eleven), and the same at the end of its `message`. All other operations refuse such keys \
with 422.

### WebSockets

`/job/push` and `/job/listen/{job_id}` are WebSockets. Frames are JSON objects in text. A refusal is a frame with `status` \
`error` and a `message`, and a close with the code 4401 (key), 4403 (access denied), 4404 (not found), 4409 (state), 4422 (the \
job file), 4400 (any other invalid input) or 4500 (an internal error).

`/job/push` takes `{\"tp_config\", \"system\", \"cluster_id\", \"teardown_cluster\"}` as its second frame. It sends \
frames that have any of `message`, `job_id`, `command` and `command_show_stdout`; the client runs each command with its shell \
in the directory of the job, and sends `{\"type\": \"command_result\", \"command\", \"exit_code\", \"command_stdout\", \
\"command_stderr\"}` back. A close with 1000 means that the job was pushed. `/job/create` does the same without commands.

`/job/listen/{job_id}` sends frames whose `message` is the log of the job from its first line on. The last one has the \
`status` `success` or `error`.

### Signed URLs

`/job/upload`, `/job/files` and `/job/output` take no key: other calls return their URLs, with a signature that is valid \
for one purpose and a limited time. Any client that has such a URL can use it.
";

const TAGS: [(&str, &str); 7] = [
    ("job", "GPU job execution and management. Run workloads on ephemeral clusters with automatic cleanup."),
    ("cluster", "GPU cluster provisioning and lifecycle management. Create persistent compute resources."),
    ("storage", "Shared storage volume management. Persistent storage that can be attached to eligible clusters."),
    ("object-storage", "S3-compatible object storage management."),
    ("ssh", "SSH key management for secure cluster access."),
    ("user", "User account management including balance, billing, and organization operations."),
    ("requests", "Cloud resource provisioning request tracking and status monitoring."),
];
