//! PATCH /admin/limits/{scope}

use axum::extract::State;
use tarn_api::admin::{AdminLimitsInfo, AdminLimitsPatch};
use tarn_control::operations::limits::{self, LimitsEdit};

use super::view::{self, CPU, OBJECTS, kept};
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::body::Body;
use crate::http::call::Call;
use crate::http::id::Id;

impl Body for AdminLimitsPatch {}

/// Set limits
///
/// Change what an organization, or a user without one, may have. What is absent stays as it is, and what is null is the configuration's
/// again. What is there already stays, also where it is more than is allowed from now on.
#[utoipa::path(
    patch,
    path = "/admin/limits/{scope}",
    operation_id = "admin_limits_edit",
    tag = "admin",
    params(("scope" = String, Path)),
    request_body = AdminLimitsPatch,
    responses(
        (status = 200, description = "The limits that hold now", body = AdminLimitsInfo),
        (status = 400, description = "Invalid ID format or limit"),
        (status = 403, description = "Only administrators of the engine may do this"),
        (status = 404, description = "User or organization not found"),
        (status = 409, description = "Idempotency-Key used for another call"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn edit(
    State(app): State<App>,
    Id(scope): Id,
    call: Call<AdminLimitsPatch>,
) -> Outcome<AdminLimitsInfo> {
    let body = call.body;
    let edit = LimitsEdit {
        instances: body.instances,
        cpu_milli: body.cpus.map(|cpus| cpus.map(|cpus| kept(cpus, CPU))),
        gpus: body.gpus,
        volume_gb: body.volume_gb,
        object_bytes: body.object_gb.map(|gigabytes| gigabytes.map(|gigabytes| kept(gigabytes, OBJECTS))),
    };
    Ok(Answer::ok(view::info(&limits::edit(&app.control, &call.caller, &scope, edit).await?)))
}
