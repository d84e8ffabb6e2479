//! DELETE /job/delete/{job_id}

use axum::extract::State;
use tarn_api::jobs::JobDeleteResponse;
use tarn_control::operations::jobs;

use crate::App;
use crate::http::input::call::IdempotentCaller;
use crate::http::input::id::Id;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Delete a job
///
/// Delete a job that has ended, with its log and its outputs.
#[utoipa::path(
    delete,
    path = "/job/delete/{job_id}",
    operation_id = "job_delete",
    tag = "job",
    params(("job_id" = String, Path)),
    responses(
        (status = 200, description = "The job was deleted", body = JobDeleteResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The job has not ended"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn delete_job(
    State(app): State<App>,
    IdempotentCaller(caller): IdempotentCaller,
    Id(job): Id,
) -> EndpointResult<JobDeleteResponse> {
    let job = jobs::delete(&app.control, &caller, &job).await?;
    let message = format!("Job {job} was deleted, with its log and its outputs.");
    Ok(JsonResponse::ok(JobDeleteResponse { job_id: job.into(), message }))
}
