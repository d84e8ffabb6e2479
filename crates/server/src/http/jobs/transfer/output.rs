//! GET /job/output/{job_id}

use std::fmt::Write;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tarn_control::jobs::outputs::{self, OpenOutput};
use tarn_control::jobs::signed::Grant;
use utoipa::IntoParams;

use super::links::{SignatureQuery, SignedCall};
use super::range;
use crate::App;
use crate::http::input::id::Id;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::jobs::Binary;
use crate::http::output::failure::Failure;

/// The requested output.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OutputQuery {
    /// Path of the output.
    path: String,
}

impl FromQuery for (OutputQuery, SignatureQuery) {
    fn from_query(fields: &mut Fields) -> Self {
        (OutputQuery { path: fields.required_text("path") }, SignatureQuery::from_query(fields))
    }
}

/// An output of a job
///
/// The URL comes from /job/pull, has a signature, and needs no key. One range of bytes may be requested.
#[utoipa::path(
    get,
    path = "/job/output/{job_id}",
    operation_id = "job_output",
    params(("job_id" = String, Path), OutputQuery, SignatureQuery),
    responses(
        (status = 200, description = "The file", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 206, description = "The requested range", content_type = "application/octet-stream", body = inline(Binary)),
        (status = 403, description = "The URL is invalid or expired"),
        (status = 404, description = "Job or file not found"),
        (status = 416, description = "The range is outside the file"),
    ),
    security(()),
)]
pub(crate) async fn get_output(
    State(app): State<App>,
    call: SignedCall,
    Id(job): Id,
    Params((query, signature)): Params<(OutputQuery, SignatureQuery)>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let OutputQuery { path } = query;
    let (caller, job) = signature.verify_caller(&app, &call, Grant::Output, &job, &path).await?;
    let requested = range::requested_range(&headers);
    let OpenOutput { size, range, body } = match outputs::open(&app.control, &caller, &job, &path, requested).await {
        Err(error) if error.code == "range_not_satisfiable" => {
            // This response must have the size of the file.
            let whole = outputs::open(&app.control, &caller, &job, &path, None).await?;
            let failure = Failure { status: StatusCode::RANGE_NOT_SATISFIABLE, ..error.into() };
            let mut response = failure.into_response();
            set_header(&mut response, header::CONTENT_RANGE, &format!("bytes */{}", whole.size));
            return Ok(response);
        }
        opened => opened?,
    };
    let mut response = Response::new(Body::from_stream(body));
    if requested.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let part = format!("bytes {}-{}/{size}", range.start, range.end.saturating_sub(1));
        set_header(&mut response, header::CONTENT_RANGE, &part);
    }
    set_header(&mut response, header::CONTENT_LENGTH, &(range.end - range.start).to_string());
    set_header(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    set_header(&mut response, header::ACCEPT_RANGES, "bytes");
    set_header(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set_header(&mut response, header::CONTENT_DISPOSITION, &content_disposition(&path));
    Ok(response)
}

fn set_header(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Returns the header that names the file for a browser: its name without directories, in the encoding that allows any
/// character.
fn content_disposition(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut out = String::from("attachment; filename*=UTF-8''");
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'-' | b'_' => out.push(char::from(byte)),
            _ => {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any file name can be encoded in the header.
    #[test]
    fn content_disposition_encodes_any_name() {
        assert_eq!(content_disposition("out/model_1.pth"), "attachment; filename*=UTF-8''model_1.pth");
        assert_eq!(content_disposition("a \"é\"\n"), "attachment; filename*=UTF-8''a%20%22%C3%A9%22%0A");
    }
}
