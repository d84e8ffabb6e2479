//! GET /admin/key/list

use axum::extract::State;
use tarn_api::admin::{AdminKeyInfo, AdminKeyListResponse};
use tarn_control::operations::admin::{self, ApiKey};
use utoipa::IntoParams;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::listing::PageQuery;
use crate::http::query::{Fields, FromQuery, Params};
use crate::http::table::{Dash, Table, more};

/// What this endpoint takes besides its page.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UserQuery {
    /// Only keys of this user.
    user_id: Option<String>,
}

impl FromQuery for (UserQuery, PageQuery) {
    fn from_query(fields: &mut Fields) -> Self {
        (UserQuery { user_id: fields.text("user_id") }, PageQuery::from_query(fields))
    }
}

/// List API keys
///
/// The keys of all users or of one, newest first, without their secrets.
#[utoipa::path(
    get,
    path = "/admin/key/list",
    operation_id = "admin_key_list",
    tag = "admin",
    params(UserQuery, PageQuery),
    responses(
        (status = 200, description = "The keys", body = AdminKeyListResponse),
        (status = 400, description = "Invalid user ID format or cursor"),
        (status = 403, description = "Only administrators of the engine may do this"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list_keys(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Params((chosen, page)): Params<(UserQuery, PageQuery)>,
) -> Outcome<AdminKeyListResponse> {
    let page = admin::list_keys(&app.control, &caller, chosen.user_id.as_deref(), page.limit, page.cursor).await?;
    let mut message = if page.items.is_empty() { "No API keys.".to_owned() } else { table(&page.items) };
    more(&mut message, page.next_cursor.as_deref());
    let keys = page.items.into_iter().map(info).collect();
    Ok(Answer::ok(AdminKeyListResponse { keys, next_cursor: page.next_cursor, message }))
}

fn table(keys: &[ApiKey]) -> String {
    let mut table = Table::new(["ID", "USER", "CREATED", "REVOKED"], keys.len());
    for key in keys {
        table.row([&key.id, &key.user, &key.created, &Dash(key.revoked)]);
    }
    table.render()
}

fn info(key: ApiKey) -> AdminKeyInfo {
    AdminKeyInfo {
        key_id: key.id.into(),
        user_id: key.user.into(),
        created_at: key.created.to_string(),
        revoked_at: key.revoked.map(|time| time.to_string()),
    }
}
