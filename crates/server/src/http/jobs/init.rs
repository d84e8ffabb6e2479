//! GET /job/init

use tarn_api::jobs::JobInitResponse;
use tarn_model::job_configs;

use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;

/// A job file to begin with
///
/// A file that says what a job does, with a comment for every key.
#[utoipa::path(
    get,
    path = "/job/init",
    operation_id = "job_init",
    tag = "job",
    responses((status = 200, description = "The file", body = JobInitResponse)),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn init(Authenticated(_caller): Authenticated) -> Outcome<JobInitResponse> {
    let template = job_configs::template().to_owned();
    let message = "Edit the file and run it with `tp job push FILE CLUSTER`.".to_owned();
    Ok(Answer::ok(JobInitResponse { config: template.clone(), empty_tp_config: template, message }))
}
