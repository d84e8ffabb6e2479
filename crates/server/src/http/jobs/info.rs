//! GET /job/info/{job_id}

use axum::extract::State;
use tarn_api::jobs::JobInfoResponse;
use tarn_control::operations::jobs;

use super::view;
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::id::Id;

/// Job details
///
/// Everything about one job: where it is in its life, what it waits for, how it ended.
#[utoipa::path(
    get,
    path = "/job/info/{job_id}",
    operation_id = "job_info",
    tag = "job",
    params(("job_id" = String, Path)),
    responses(
        (status = 200, description = "The job", body = JobInfoResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn info(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Id(job): Id,
) -> Outcome<JobInfoResponse> {
    let found = jobs::info(&app.control, &caller, &job).await?;
    let message = view::text(&found);
    Ok(Answer::ok(JobInfoResponse { job_info: view::info(found), message }))
}
