//! GET /user/organization/info

use axum::extract::State;
use tarn_api::users::{OrganizationInfo, OrganizationMember};
use tarn_control::operations::users::{self, OrgView};

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::table::Cell::{Shown, Text};
use crate::http::table::{Table, block};

/// Organization details
///
/// The caller's organization with its members and its balance.
#[utoipa::path(
    get,
    path = "/user/organization/info",
    operation_id = "user_organization_info",
    tag = "user",
    responses(
        (status = 200, description = "The organization", body = OrganizationInfo),
        (status = 404, description = "The user has no organization"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn organization(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
) -> Outcome<OrganizationInfo> {
    let view = users::organization(&app.control, &caller).await?;
    let message = text(&view);
    let members = view.members.into_iter();
    let members =
        members.map(|user| OrganizationMember { uid: user.id.into(), email: user.email, admin: user.org_admin });
    Ok(Answer::ok(OrganizationInfo {
        org_id: view.org.id.into(),
        org_name: view.org.name,
        members: members.collect(),
        balance: view.balance.as_dollars(),
        message,
    }))
}

fn text(view: &OrgView) -> String {
    let mut table = Table::new(["MEMBER", "E-MAIL", "ROLE"], view.members.len());
    for user in &view.members {
        table.row([&user.id, &user.email, &if user.org_admin { "admin" } else { "member" }]);
    }
    let block = block(&[
        ("Organization", Text(&view.org.name)),
        ("ID", Text(view.org.id.as_str())),
        ("Balance", Shown(&view.balance)),
    ]);
    format!("{block}\n\n{}", table.render())
}
