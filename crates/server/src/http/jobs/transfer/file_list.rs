//! GET /job/files/{job_id}

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use tarn_control::jobs::file_lists::{self, OpenList};
use tarn_control::jobs::signed::Grant;

use super::links::{SignatureQuery, SignedCall};
use crate::App;
use crate::http::input::id::Id;
use crate::http::input::query::Params;
use crate::http::jobs::Binary;
use crate::http::output::failure::Failure;

/// File list of a push
///
/// The names of the files to upload, each followed by a NUL, which the command of a push fetches. The URL has a
/// signature, needs no key, and works until the push ends.
#[utoipa::path(
    get,
    path = "/job/files/{job_id}",
    operation_id = "job_files",
    params(("job_id" = String, Path), SignatureQuery),
    responses(
        (status = 200, description = "The names", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 403, description = "The URL is invalid or expired"),
        (status = 404, description = "The push has ended"),
    ),
    security(()),
)]
pub(crate) async fn get_file_list(
    State(app): State<App>,
    call: SignedCall,
    Id(job): Id,
    Params(signature): Params<SignatureQuery>,
) -> Result<Response, Failure> {
    let (caller, job) = signature.verify_caller(&app, &call, Grant::Files, &job, "").await?;
    let OpenList { size, body } = file_lists::open(&app.control, &caller, &job).await?;
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    Ok(response)
}
