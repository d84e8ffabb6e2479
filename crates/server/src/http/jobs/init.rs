//! GET /job/init

use tarn_api::jobs::JobInitResponse;
use tarn_model::job_configs;

use crate::http::input::call::ReadCall;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// Job file template
///
/// A template of a job file, with a comment for every key.
#[utoipa::path(
    get,
    path = "/job/init",
    operation_id = "job_init",
    responses((status = 200, description = "The file", body = JobInitResponse)),
)]
pub(crate) async fn get_job_template(_call: ReadCall) -> EndpointResult<JobInitResponse> {
    let template = job_configs::template().to_owned();
    let message = "Edit the file and run it with `tp job push FILE CLUSTER`.".to_owned();
    Ok(JsonResponse::ok(JobInitResponse { config: template.clone(), empty_tp_config: template, message }))
}
