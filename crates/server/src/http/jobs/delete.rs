//! DELETE /job/delete/{job_id}

use tarn_api::jobs::JobDeleteResponse;
use tarn_control::operations::jobs;

use crate::http::input::call::ChangeCall;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Delete a job
///
/// Delete a job that has ended, with its log and its outputs.
#[utoipa::path(
    delete,
    path = "/job/delete/{job_id}",
    operation_id = "job_delete",
    params(("job_id" = String, Path)),
    responses(
        (status = 200, description = "The job was deleted", body = JobDeleteResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The job has not ended"),
    ),
)]
pub(crate) async fn delete_job(call: ChangeCall, Id(job): Id) -> EndpointResult<JobDeleteResponse> {
    let job = jobs::delete(&call.control, &call.caller, &job).await?;
    let message = format!("Job {job} was deleted, with its log and its outputs.");
    Ok(JsonResponse::ok(JobDeleteResponse { job_id: job.into(), message }))
}
