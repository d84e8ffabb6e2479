//! GET /job/info/{job_id}

use tarn_api::jobs::JobInfoResponse;
use tarn_control::operations::jobs;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Job details
///
/// Everything about one job: its state, what it waits for, how it ended.
#[utoipa::path(
    get,
    path = "/job/info/{job_id}",
    operation_id = "job_info",
    params(("job_id" = String, Path)),
    responses(
        (status = 200, description = "The job", body = JobInfoResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
    ),
)]
pub(crate) async fn get_job(call: ReadCall, Id(job): Id) -> EndpointResult<JobInfoResponse> {
    let found = jobs::info(&call.control, &call.caller, &job).await?;
    let message = view::job_text(&found);
    Ok(JsonResponse::ok(JobInfoResponse { job_info: view::job_info(found), message }))
}
