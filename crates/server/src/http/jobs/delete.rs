//! DELETE /job/delete/{job_id}

use axum::extract::State;
use tarn_api::jobs::JobDeleteResponse;
use tarn_control::operations::jobs;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Delete a job
///
/// Forget a job that has ended, with its log and its outputs.
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
pub(crate) async fn delete(State(app): State<App>, Acting(caller): Acting, Id(job): Id) -> Outcome<JobDeleteResponse> {
    let job = jobs::delete(&app.control, &caller, &job).await?;
    let message = format!("Job {job} was deleted, with its log and its outputs.");
    Ok(Answer::ok(JobDeleteResponse { job_id: job.into(), message }))
}
