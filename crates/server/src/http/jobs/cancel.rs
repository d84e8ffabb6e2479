//! POST /job/cancel/{job_id}

use tarn_api::jobs::JobStatusResponse;
use tarn_control::operations::jobs;
use tarn_model::ids::JobId;
use tarn_model::jobs::State as JobState;

use super::view;
use crate::http::input::call::ChangeCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Cancel a job
///
/// Returns 202 immediately; the job is stopped in the background: it has a few seconds to end by itself and is then
/// killed. Poll /job/info/{job_id} until it is canceled.
#[utoipa::path(
    post,
    path = "/job/cancel/{job_id}",
    operation_id = "job_cancel",
    params(("job_id" = String, Path)),
    responses(
        (status = 202, description = "Cancellation initiated", body = JobStatusResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The job has ended already"),
    ),
)]
pub(crate) async fn cancel_job(call: ChangeCall, Id(job): Id) -> EndpointResult<JobStatusResponse> {
    let job = jobs::cancel(&call.control, &call.caller, &job).await?.job;
    let message = match &job.state {
        JobState::Ended(_) => format!("Job {} was canceled; it had not begun to run.", job.id),
        JobState::Draft | JobState::Pending | JobState::Starting | JobState::Running => canceling_text(&job.id),
        JobState::Stopping(_) | JobState::Collecting(_) => canceling_text(&job.id),
    };
    Ok(JsonResponse::accepted(JobStatusResponse {
        status: view::job_status(&job.state),
        job_id: job.id.into(),
        message,
    }))
}

fn canceling_text(job: &JobId) -> String {
    format!("Job {job} is being canceled. See how far it is with `tp job info {job}`.")
}
