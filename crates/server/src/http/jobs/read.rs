//! The endpoints that show jobs, and the template of their file.

use tarn_api::jobs::{JobInfoResponse, JobInitResponse, JobListResponse};
use tarn_control::operations::jobs;
use tarn_model::job_configs;

use super::view;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::listing::ListQuery;
use crate::http::input::query::Params;
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::append_next_page;

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

/// List jobs
///
/// The jobs that the caller created or, with include_org, all jobs of the organization, newest first.
#[utoipa::path(
    get,
    path = "/job/list",
    operation_id = "job_list",
    params(ListQuery),
    responses(
        (status = 200, description = "The jobs", body = JobListResponse),
        (status = 400, description = "Invalid cursor"),
    ),
)]
pub(crate) async fn list_jobs(call: ReadCall, Params(listing): Params<ListQuery>) -> EndpointResult<JobListResponse> {
    let page = jobs::list(&call.control, &call.caller, listing.into()).await?;
    let mut message = match page.items.as_slice() {
        [] => "No jobs. Start with `tp job init`.".to_owned(),
        items => view::job_table(items),
    };
    append_next_page(&mut message, page.next_cursor.as_deref());
    let jobs = page.items.into_iter().map(view::job_info).collect();
    Ok(JsonResponse::ok(JobListResponse { jobs, next_cursor: page.next_cursor, message }))
}

/// Job details
///
/// Everything about one job: its state, what it waits for, how it ended.
#[utoipa::path(
    get,
    path = "/job/info/{job_id}",
    operation_id = "job_info",
    params(("job_id" = String, Path)),
    responses(
        (status = 200, description = "The job", body = JobInfoResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job not found"),
    ),
)]
pub(crate) async fn get_job(call: ReadCall, Id(job): Id) -> EndpointResult<JobInfoResponse> {
    let found = jobs::info(&call.control, &call.caller, &job).await?;
    let message = view::job_text(&found);
    Ok(JsonResponse::ok(JobInfoResponse { job_info: view::job_info(found), message }))
}
