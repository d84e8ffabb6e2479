//! GET /job/pull/{job_id}

use tarn_api::jobs::JobPullResponse;
use tarn_api::ssh::SystemType;
use tarn_control::jobs::outputs::{self, Outputs};
use tarn_control::jobs::signed::{self, Grant};
use utoipa::IntoParams;

use super::links;
use crate::http::input::address::Address;
use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::jobs::view;
use crate::http::output::response::{EndpointResult, JsonResponse};

/// The parameters of a pull.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "clients send the system and the path of a key, which are ignored")]
pub(crate) struct PullQuery {
    /// Operating system of the client, in any case. Ignored.
    #[param(required = false)]
    system: Option<SystemType>,
    /// A path on the client. Ignored.
    #[param(required = false)]
    private_key_path: Option<String>,
    /// Return only the names of the files, without URLs.
    #[param(required = false, default = false)]
    dry_run: bool,
    /// Return only these files, which must exist; may be given several times.
    #[param(required = false)]
    files: Option<Vec<String>>,
}

impl FromQuery for PullQuery {
    fn from_query(fields: &mut Fields) -> Self {
        PullQuery {
            system: fields.choice("system", &SYSTEMS),
            private_key_path: fields.text("private_key_path"),
            dry_run: fields.flag("dry_run"),
            files: Some(fields.texts("files")),
        }
    }
}

const SYSTEMS: [(&str, SystemType); 3] =
    [("windows", SystemType::Windows), ("linux", SystemType::Linux), ("darwin", SystemType::Darwin)];

/// Outputs of a job
///
/// The stored files of a job that has ended, or the files that match its outputs while it runs, each with a URL that
/// needs no key. A URL is valid for an hour, unless the engine is configured otherwise, and only as long as the caller
/// has access.
#[utoipa::path(
    get,
    path = "/job/pull/{job_id}",
    operation_id = "job_pull",
    params(("job_id" = String, Path), PullQuery),
    responses(
        (status = 200, description = "The files", body = JobPullResponse),
        (status = 400, description = "Invalid job ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Job or file not found"),
    ),
)]
pub(crate) async fn pull_outputs(
    call: ReadCall,
    Id(job): Id,
    address: Address,
    Params(query): Params<PullQuery>,
) -> EndpointResult<JobPullResponse> {
    let found = outputs::list(&call.control, &call.caller, &job, &query.files.unwrap_or_default()).await?;
    let message = outputs_text(&found);
    let Outputs { job, files, .. } = found;
    if !query.dry_run && !files.is_empty() {
        signed::record_issued(&call.control, &call.caller, &job, Grant::Output, files.len()).await?;
    }
    let signed_url = |path: &str| links::output_url(&call.control, &call.caller, &address, &job.id, path);
    let url = |path: &str| (!query.dry_run).then(|| signed_url(path));
    let download_map = files.into_iter().map(|file| (url(&file.path), file.path)).map(|(url, path)| (path, url));
    let download_map = download_map.collect();
    Ok(JsonResponse::ok(JobPullResponse { message, download_map, command: None, command_show_stdout: None }))
}

fn outputs_text(Outputs { job, files, live }: &Outputs) -> String {
    let (id, status) = (&job.id, job.state.status());
    let total = view::size_text(files.iter().map(|file| file.size).sum());
    let count = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
    match (files.as_slice(), live) {
        _ if job.config.outputs.is_empty() => {
            format!("Job {id} keeps no files: its job file has no `outputs`.")
        }
        ([], true) => format!("Job {id} is {status}, and no file matches its outputs yet."),
        ([], false) => format!("Job {id} has no outputs ({status}): no file matched them."),
        (_, true) => format!("Job {id} is {status}; it has {count} so far, {total}."),
        (_, false) => format!("Job {id} is {status}; it has {count}, {total}."),
    }
}
