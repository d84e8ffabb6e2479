//! PUT /job/upload/{job_id}

use std::io;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::extract::State;
use axum::http::StatusCode;
use futures::stream::{self, Stream, StreamExt};
use tarn_api::jobs::JobUploadResponse;
use tarn_control::jobs::signed::Grant;
use tarn_control::jobs::upload as files;

use super::Binary;
use super::links::SignatureQuery;
use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::failure::Failure;
use crate::http::id::Id;
use crate::http::query::Params;

/// How long nothing may come of an upload.
const PATIENCE: Duration = Duration::from_secs(60);

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
pub(crate) async fn upload(
    State(app): State<App>,
    Id(job): Id,
    Params(signature): Params<SignatureQuery>,
    body: Body,
) -> Outcome<JobUploadResponse> {
    let declared = body.size_hint().exact();
    let mut pieces = Box::pin(pieces(body.into_data_stream()).fuse());
    let received = match signature.job(&app.control, Grant::Upload, &job, "") {
        Ok(job) => files::receive(&app.control, &job, declared, &mut pieces).await.map_err(refused),
        Err(failure) => Err(failure),
    };
    match received {
        Ok(bytes) => {
            let message = format!("The files of job {job} are there, {}.", view::size(bytes));
            Ok(Answer::ok(JobUploadResponse { job_id: job, bytes, message }))
        }
        Err(failure) => {
            discard(pieces).await;
            Err(failure)
        }
    }
}

fn refused(error: tarn_control::Error) -> Failure {
    match error.code {
        "archive_too_large" => Failure { status: StatusCode::PAYLOAD_TOO_LARGE, ..error.into() },
        _ => error.into(),
    }
}

/// The body in pieces. A client that falls silent in the middle of it is not waited for.
fn pieces(body: BodyDataStream) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(Some(body), |body| async {
        let mut body = body?;
        match tokio::time::timeout(PATIENCE, body.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(body))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came any more")), None)),
        }
    })
}

async fn discard(mut pieces: impl Stream<Item = io::Result<Bytes>> + Unpin) {
    let mut discarded = 0;
    while let Some(Ok(piece)) = pieces.next().await {
        discarded += piece.len();
        if discarded > MAX_DISCARDED {
            break;
        }
    }
}
