//! DELETE /object-storage/disable

use axum::extract::State;
use tarn_api::health::MessageResponse;
use tarn_control::operations::object_storage;
use utoipa::IntoParams;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::call::Acting;
use crate::http::query::{Fields, FromQuery, Params};

/// Whether what is there may be lost.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DisableQuery {
    /// Also when buckets hold objects: all of them are lost.
    #[param(required = false, default = false)]
    force: bool,
}

impl FromQuery for DisableQuery {
    fn from_query(fields: &mut Fields) -> Self {
        DisableQuery { force: fields.flag("force") }
    }
}

/// Disable object storage
///
/// Take object storage from the caller's organization. Its keys open nothing any more. Refused while buckets hold objects,
/// unless force is set; what there is, is then deleted in the background.
#[utoipa::path(
    delete,
    path = "/object-storage/disable",
    operation_id = "object_storage_disable",
    tag = "object-storage",
    params(DisableQuery),
    responses(
        (status = 200, description = "Object storage was disabled", body = MessageResponse),
        (status = 403, description = "The caller is in no organization"),
        (status = 404, description = "Object storage is not enabled"),
        (status = 409, description = "Buckets hold objects"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn disable(
    State(app): State<App>,
    Acting(caller): Acting,
    Params(query): Params<DisableQuery>,
) -> Outcome<MessageResponse> {
    let message = object_storage::disable(&app.control, &caller, query.force).await?;
    Ok(Answer::ok(MessageResponse { message: Some(message) }))
}
