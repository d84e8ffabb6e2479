//! The endpoints that create, start, cancel and delete jobs.

use tarn_api::jobs::{JobCreateRequest, JobCreateResponse, JobDeleteResponse, JobStatusResponse};
use tarn_control::operations::jobs::{self, NewJob};
use tarn_model::ids::JobId;
use tarn_model::jobs::State as JobState;

use super::transfer::links;
use super::{creation_failure, view};
use crate::http::input::address::Address;
use crate::http::input::body::Body;
use crate::http::input::call::{Call, ChangeCall};
use crate::http::input::id::Id;
use crate::http::output::failure::Failure;
use crate::http::output::response::{EndpointResult, JsonResponse};

impl Body for JobCreateRequest {}

/// Create a job
///
/// Create a job without a WebSocket: upload its files as a tar.gz to upload_url and start it with /job/start/{job_id}.
/// A job without files (files false) can be started at once (start true). A job that is not started is deleted after a
/// while.
#[utoipa::path(
    post,
    path = "/job/create",
    operation_id = "job_create",
    request_body = JobCreateRequest,
    responses(
        (status = 201, description = "The job was created", body = JobCreateResponse),
        (status = 400, description = "Both files and start are true"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Cluster not found"),
        (status = 409, description = "Cluster not RUNNING, it takes no more jobs, or teardown of a protected cluster"),
    ),
)]
pub(crate) async fn create_job(address: Address, call: Call<JobCreateRequest>) -> EndpointResult<JobCreateResponse> {
    let body = call.body;
    let has_files = body.files.unwrap_or(true);
    let start = body.start.unwrap_or(false);
    if has_files && start {
        let message = "a job with files cannot start before they are uploaded; set files to false, or start to false";
        return Err(Failure::invalid("files_missing", message));
    }
    let (config, cluster, teardown) = (body.tp_config, body.cluster_id, body.teardown_cluster.unwrap_or(false));
    let new = NewJob { config, cluster, teardown, has_files };
    let made = if start {
        jobs::run(&call.control, &call.caller, new).await
    } else {
        jobs::create(&call.control, &call.caller, new).await
    };
    let job = made.map_err(creation_failure)?.job;
    let id = &job.id;
    let how = match (has_files, start) {
        (true, _) => format!("Upload its files as a tar.gz to upload_url and start it with POST /job/start/{id}."),
        (false, false) => format!("Start it with POST /job/start/{id}."),
        (false, true) => format!("Listen with `tp job listen {id}`."),
    };
    let message = format!("Job {id} ({}) was created. {how}", job.name);
    let upload_url = has_files.then(|| links::upload_url(&call.control, &address, id));
    Ok(JsonResponse::created(JobCreateResponse { job_id: job.id.into(), upload_url, message }))
}

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
