//! PUT /job/upload/{job_id}

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use futures::stream::{Stream, StreamExt, TryStreamExt};
use tarn_api::jobs::JobUploadResponse;
use tarn_control::jobs::signed::Grant;
use tarn_control::jobs::upload;
use tokio::time::timeout;

use super::links::{SignatureQuery, SignedCall};
use crate::App;
use crate::http::input::id::Id;
use crate::http::input::query::Params;
use crate::http::jobs::Binary;
use crate::http::jobs::view;
use crate::http::output::failure::Failure;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::idle_timeout::with_idle_timeout;

/// How long an upload may send nothing.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of a refused upload is read and discarded: a client that is cut off while it sends would see a broken
/// connection instead of the response. Clients that send `Expect: 100-continue`, as most do for large bodies, send
/// nothing.
const MAX_DISCARDED: usize = 16 << 20;

/// How long a refused upload is read at most.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Upload the files of a job
///
/// The URL comes from /job/create, has a signature, and needs no key. It accepts one tar.gz, once: the paths in it must
/// be relative and stay in the directory of the job, including links.
#[utoipa::path(
    put,
    path = "/job/upload/{job_id}",
    operation_id = "job_upload",
    params(("job_id" = String, Path), SignatureQuery),
    request_body(content = inline(Binary), content_type = "application/octet-stream", description = "A tar.gz"),
    responses(
        (status = 200, description = "The files were uploaded", body = JobUploadResponse),
        (status = 400, description = "Invalid archive, or the upload was interrupted"),
        (status = 403, description = "The URL is invalid or expired"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The job has its files already, or was started"),
        (status = 413, description = "The archive or its content is too large"),
    ),
    security(()),
)]
pub(crate) async fn upload_files(
    State(app): State<App>,
    call: SignedCall,
    Id(job): Id,
    Params(signature): Params<SignatureQuery>,
    body: Body,
) -> EndpointResult<JobUploadResponse> {
    let declared = body.size_hint().exact();
    let mut chunks = with_idle_timeout(body, IDLE_TIMEOUT).into_data_stream().map_err(io::Error::other);
    let received = match signature.verify_caller(&app, &call, Grant::Upload, &job, "").await {
        Ok((caller, job)) => {
            upload::receive(&app.control, &caller, &job, declared, &mut chunks).await.map_err(upload_failure)
        }
        Err(failure) => Err(failure),
    };
    match received {
        Ok(bytes) => {
            let message = format!("The files of job {job} were uploaded, {}.", view::size_text(bytes));
            Ok(JsonResponse::ok(JobUploadResponse { job_id: job, bytes, message }))
        }
        Err(failure) => {
            // Without a permit the client may see a broken connection instead of the refusal.
            if let Some(_permit) = app.shared.sockets.acquire_discard(call.address()) {
                let _ = timeout(DISCARD_TIMEOUT, discard_body(chunks)).await;
            }
            Err(failure)
        }
    }
}

fn upload_failure(error: tarn_control::Error) -> Failure {
    match error.code {
        "archive_too_large" => Failure { status: StatusCode::PAYLOAD_TOO_LARGE, ..error.into() },
        _ => error.into(),
    }
}

async fn discard_body(mut chunks: impl Stream<Item = io::Result<Bytes>> + Unpin) {
    let mut discarded = 0;
    while let Some(Ok(chunk)) = chunks.next().await {
        discarded += chunk.len();
        if discarded > MAX_DISCARDED {
            break;
        }
    }
}
