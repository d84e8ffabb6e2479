//! POST /job/start/{job_id}

use axum::extract::State;
use tarn_api::jobs::JobStatusResponse;
use tarn_control::operations::jobs;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::id::Id;

/// Start a job
///
/// Put a job whose files are there into the line of its cluster. One that was started already stays as it is. Poll
/// /job/info/{job_id} to see how far it is.
#[utoipa::path(
    post,
    path = "/job/start/{job_id}",
    operation_id = "job_start",
    tag = "job",
    params(("job_id" = String, Path)),
    responses(
        (status = 202, description = "The job waits for its turn", body = JobStatusResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
        (status = 409, description = "The files are missing, or the cluster takes no jobs"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn start(State(app): State<App>, Acting(caller): Acting, Id(job): Id) -> Outcome<JobStatusResponse> {
    let view = jobs::start(&app.control, &caller, &job).await?;
    let (job, explanation) = (view.job, view.explanation);
    let message = format!("Job {} ({}): {explanation}", job.id, job.name);
    Ok(Answer::accepted(JobStatusResponse { status: view::status(&job.state), job_id: job.id.into(), message }))
}
