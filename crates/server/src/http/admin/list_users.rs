//! GET /admin/user/list

use axum::extract::State;
use tarn_api::admin::{AdminUserInfo, AdminUserListResponse};
use tarn_control::operations::admin::{self, UserRow};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::listing::PageQuery;
use crate::http::query::Params;
use crate::http::table::{Dash, Table, more};

/// List users
///
/// Every user of the engine, newest first.
#[utoipa::path(
    get,
    path = "/admin/user/list",
    operation_id = "admin_user_list",
    tag = "admin",
    params(PageQuery),
    responses(
        (status = 200, description = "The users", body = AdminUserListResponse),
        (status = 400, description = "Invalid cursor"),
        (status = 403, description = "Only administrators of the engine may do this"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list_users(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Params(PageQuery { limit, cursor }): Params<PageQuery>,
) -> Outcome<AdminUserListResponse> {
    let page = admin::list_users(&app.control, &caller, limit, cursor).await?;
    let mut message = table(&page.items);
    more(&mut message, page.next_cursor.as_deref());
    let users = page.items.into_iter().map(info).collect();
    Ok(Answer::ok(AdminUserListResponse { users, next_cursor: page.next_cursor, message }))
}

fn table(rows: &[UserRow]) -> String {
    let mut table = Table::new(["ID", "E-MAIL", "ORGANIZATION", "ROLE", "BALANCE", "STATUS", "CREATED"], rows.len());
    for UserRow { user, org_name, balance } in rows {
        let role = match (user.engine_admin, user.org_admin) {
            (true, _) => "engine admin",
            (false, true) => "organization admin",
            (false, false) => "member",
        };
        let status = if user.disabled { "disabled" } else { "enabled" };
        table.row([&user.id, &user.email, &Dash(org_name.as_deref()), &role, balance, &status, &user.created]);
    }
    table.render()
}

fn info(row: UserRow) -> AdminUserInfo {
    let UserRow { user, org_name, balance } = row;
    AdminUserInfo {
        user_id: user.id.into(),
        email: user.email,
        org_id: user.org.map(Into::into),
        org_name,
        org_admin: user.org_admin,
        engine_admin: user.engine_admin,
        disabled: user.disabled,
        balance: balance.as_dollars(),
        created_at: user.created.to_string(),
    }
}
