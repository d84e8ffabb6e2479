//! PUT /job/upload/{job_id}

use std::io;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use futures::stream::{self, Stream, StreamExt};
use tarn_api::jobs::JobUploadResponse;
use tarn_control::jobs::signed::Grant;
use tarn_control::jobs::upload;

use super::links::SignatureQuery;
use crate::App;
use crate::http::input::id::Id;
use crate::http::input::query::Params;
use crate::http::jobs::Binary;
use crate::http::jobs::view;
use crate::http::output::failure::Failure;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// How long nothing may come of an upload.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How much is taken and thrown away of an upload that was refused: a client that is cut off while it sends sees a broken
/// connection instead of the answer. Clients that wait to be asked for the body, as most do with large ones, send nothing.
const MAX_DISCARDED: usize = 16 << 20;

/// Upload the files of a job
///
/// The address comes from /job/create, with its signature, and needs no key. It takes one tar.gz, once: the paths in it are
/// relative and stay below the job's directory, links included.
#[utoipa::path(
    put,
    path = "/job/upload/{job_id}",
    operation_id = "job_upload",
    tag = "job",
    params(("job_id" = String, Path), SignatureQuery),
    request_body(content = inline(Binary), content_type = "application/octet-stream", description = "A tar.gz"),
    responses(
        (status = 200, description = "The files are there", body = JobUploadResponse),
        (status = 400, description = "Not an archive that can be taken, or it broke off"),
        (status = 403, description = "The URL is not good, or not any more"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The job has its files already, or was started"),
        (status = 413, description = "The archive, or what is in it, is too large"),
    ),
    security(()),
)]
pub(crate) async fn upload_files(
    State(app): State<App>,
    Id(job): Id,
    Params(signature): Params<SignatureQuery>,
    body: Body,
) -> EndpointResult<JobUploadResponse> {
    let declared = body.size_hint().exact();
    let mut chunks = Box::pin(body_chunks(body.into_data_stream()).fuse());
    let received = match signature.verify_job(&app.control, Grant::Upload, &job, "") {
        Ok(job) => upload::receive(&app.control, &job, declared, &mut chunks).await.map_err(upload_failure),
        Err(failure) => Err(failure),
    };
    match received {
        Ok(bytes) => {
            let message = format!("The files of job {job} are there, {}.", view::size_text(bytes));
            Ok(JsonResponse::ok(JobUploadResponse { job_id: job, bytes, message }))
        }
        Err(failure) => {
            discard_body(chunks).await;
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

/// The body in chunks. A client that falls silent in the middle of it is not waited for.
fn body_chunks(body: BodyDataStream) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(Some(body), |body| async {
        let mut body = body?;
        match tokio::time::timeout(IDLE_TIMEOUT, body.next()).await {
            Ok(Some(Ok(chunk))) => Some((Ok(chunk), Some(body))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came any more")), None)),
        }
    })
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
