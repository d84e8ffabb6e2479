//! POST /job/create

use tarn_api::jobs::{JobCreateRequest, JobCreateResponse};
use tarn_control::jobs::signed::{self, Grant};
use tarn_control::operations::jobs::{self, NewJob};

use super::creation_failure;
use super::transfer::links;
use crate::http::input::address::Address;
use crate::http::input::body::Body;
use crate::http::input::call::Call;
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
    if has_files {
        signed::record_issued(&call.control, &call.caller, &job, Grant::Upload, 1).await?;
    }
    let upload_url = has_files.then(|| links::upload_url(&call.control, &call.caller, &address, id));
    Ok(JsonResponse::created(JobCreateResponse { job_id: job.id.into(), upload_url, message }))
}
