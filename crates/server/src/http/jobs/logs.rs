//! GET /job/logs/{job_id}

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use futures::stream::{self, StreamExt};
use tarn_control::jobs::logs;
use utoipa::IntoParams;

use super::Binary;
use crate::App;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::failure::Failure;

/// How much is read at a time; the next chunk is read when this one was sent. So much is kept for a client that does
/// not read.
const CHUNK_BYTES: u64 = 64 << 10;

/// The longest wait for output. A proxy in front of the engine may have a timeout not much longer.
const MAX_WAIT_SECONDS: i64 = 60;

/// The requested part of a log.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PartQuery {
    /// The first byte.
    #[param(required = false, minimum = 0, default = 0)]
    offset: u64,
    /// Maximum number of bytes; without it the whole rest.
    #[param(required = false, minimum = 0)]
    limit: Option<u64>,
    /// If there is nothing yet, wait this many seconds. The response comes as soon as there is output, or the job has
    /// ended.
    #[param(required = false, minimum = 0, maximum = 60, default = 0)]
    wait: u64,
}

impl FromQuery for PartQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let mut number = |name, most| fields.number(name, 0..=most).and_then(|number| u64::try_from(number).ok());
        PartQuery {
            offset: number("offset", i64::MAX).unwrap_or(0),
            limit: number("limit", i64::MAX),
            wait: number("wait", MAX_WAIT_SECONDS).unwrap_or(0),
        }
    }
}

/// Output of a job
///
/// The log of a job so far, as bytes. The header x-log-size has the number of bytes in total, and x-log-ended whether
/// the log is complete.
#[utoipa::path(
    get,
    path = "/job/logs/{job_id}",
    operation_id = "job_logs",
    params(("job_id" = String, Path), PartQuery),
    responses(
        (
            status = 200,
            description = "The output",
            content_type = "application/octet-stream",
            body = inline(Binary),
            headers(
                ("x-log-size" = i64, description = "Number of bytes so far"),
                ("x-log-ended" = bool, description = "Whether the log is complete"),
            ),
        ),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
        (status = 429, description = "Too many listeners"),
    ),
)]
pub(crate) async fn get_job_log(
    State(app): State<App>,
    call: ReadCall,
    Id(job): Id,
    Params(PartQuery { offset, limit, wait }): Params<PartQuery>,
) -> Result<Response, Failure> {
    if wait > 0 {
        let _permit = app.shared.sockets.listeners.acquire(&call.caller.user.owner())?;
        tokio::select! {
            waited = logs::wait(&call.control, &call.caller, &job, offset, Duration::from_secs(wait)) => waited?,
            () = app.stopping() => {}
        }
    }
    let limit = limit.unwrap_or(u64::MAX);
    let first = logs::read(&call.control, &call.caller, &job, offset, limit.min(CHUNK_BYTES)).await?;
    let end = first.total.min(offset.saturating_add(limit)).max(offset);
    let next = offset + first.data.len() as u64;
    let remaining = RemainingLog { call, job, next, end };
    let chunks = stream::iter([Ok(first.data)]).chain(stream::try_unfold(remaining, RemainingLog::read_chunk));
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - offset));
    headers.insert(HeaderName::from_static("x-log-size"), HeaderValue::from(first.total));
    let ended = HeaderValue::from_static(if first.ended { "true" } else { "false" });
    headers.insert(HeaderName::from_static("x-log-ended"), ended);
    Ok(response)
}

/// The part of a log that is still to be sent.
struct RemainingLog {
    call: ReadCall,
    job: String,
    next: u64,
    end: u64,
}

impl RemainingLog {
    /// Reads the next chunk. An error breaks the response off, which the client notices by its length.
    async fn read_chunk(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let limit = CHUNK_BYTES.min(self.end - self.next);
        let part = logs::read(&self.call.control, &self.call.caller, &self.job, self.next, limit).await;
        let data = part.map_err(io::Error::other)?.data;
        if data.is_empty() {
            return Err(io::Error::other("the log became shorter while it was read"));
        }
        self.next += data.len() as u64;
        Ok(Some((data, self)))
    }
}
