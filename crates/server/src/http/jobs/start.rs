//! POST /job/start/{job_id}

use tarn_api::jobs::JobStatusResponse;
use tarn_control::operations::jobs;

use super::view;
use crate::http::input::call::ChangeCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Start a job
///
/// Put a job whose files are uploaded into the queue of its cluster. A job that was started already stays unchanged.
/// Poll /job/info/{job_id} to track progress.
#[utoipa::path(
    post,
    path = "/job/start/{job_id}",
    operation_id = "job_start",
    params(("job_id" = String, Path)),
    responses(
        (status = 202, description = "The job is in the queue", body = JobStatusResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The files are missing, or the cluster takes no jobs"),
    ),
)]
pub(crate) async fn start_job(call: ChangeCall, Id(job): Id) -> EndpointResult<JobStatusResponse> {
    let view = jobs::start(&call.control, &call.caller, &job).await?;
    let (job, explanation) = (view.job, view.explanation);
    let message = format!("Job {} ({}): {explanation}", job.id, job.name);
    Ok(JsonResponse::accepted(JobStatusResponse {
        status: view::job_status(&job.state),
        job_id: job.id.into(),
        message,
    }))
}
