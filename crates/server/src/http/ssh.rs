//! The endpoint of the tag `ssh`.

use tarn_api::ssh::{SSHCommandResponse, SystemType};
use tarn_control::operations::ssh::{self, SshClient};
use utoipa::IntoParams;

use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};

/// The parameters of the SSH command.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SystemQuery {
    /// Operating system of the client, in any case. On Windows `ssh` stores the host key at the first login; elsewhere
    /// the command contains the host key.
    system: Option<SystemType>,
}

impl FromQuery for SystemQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let choices = [("windows", SystemType::Windows), ("linux", SystemType::Linux), ("darwin", SystemType::Darwin)];
        SystemQuery { system: fields.choice("system", &choices) }
    }
}

/// SSH command for an instance
///
/// The command that opens a shell on the instance. It needs no shell, and options may be appended.
#[utoipa::path(
    get,
    path = "/ssh/{instance_id}",
    operation_id = "ssh_command",
    params(("instance_id" = String, Path), SystemQuery),
    responses(
        (status = 200, description = "The command", body = SSHCommandResponse),
        (status = 400, description = "Invalid instance ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Instance not found"),
        (status = 409, description = "Instance not RUNNING"),
    ),
)]
pub(crate) async fn get_ssh_command(
    call: ReadCall,
    Id(instance): Id,
    Params(query): Params<SystemQuery>,
) -> EndpointResult<SSHCommandResponse> {
    let client = match query.system {
        Some(SystemType::Windows) => SshClient::Remembering,
        Some(SystemType::Linux | SystemType::Darwin) | None => SshClient::Pinning,
    };
    let ssh::SshCommand { command, message } = ssh::command(&call.control, &call.caller, &instance, client).await?;
    Ok(JsonResponse::ok(SSHCommandResponse { command, message }))
}
