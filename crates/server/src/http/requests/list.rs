//! GET /request/list

use axum::extract::State;
use tarn_api::requests::RequestListResponse;
use tarn_control::operations::requests::{self, RequestFilter};

use super::view::{self, KindQuery};
use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::listing::{OrgQuery, PageQuery};
use crate::http::query::{Fields, FromQuery, Params};
use crate::http::table::more;

impl FromQuery for (KindQuery, OrgQuery, PageQuery) {
    fn from_query(fields: &mut Fields) -> Self {
        (KindQuery::from_query(fields), OrgQuery::from_query(fields), PageQuery::from_query(fields))
    }
}

/// List requests
///
/// The requests of the caller or, with include_org, all of the organization's, newest first.
#[utoipa::path(
    get,
    path = "/request/list",
    operation_id = "request_list",
    tag = "requests",
    params(KindQuery, OrgQuery, PageQuery),
    responses(
        (status = 200, description = "The requests", body = RequestListResponse),
        (status = 400, description = "Invalid cursor"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Params((chosen, whose, page)): Params<(KindQuery, OrgQuery, PageQuery)>,
) -> Outcome<RequestListResponse> {
    let (OrgQuery { include_org }, PageQuery { limit, cursor }) = (whose, page);
    let filter = RequestFilter { kind: chosen.kind(), status: chosen.status(), limit, cursor, include_org };
    let page = requests::list(&app.control, &caller, filter).await?;
    let mut message = if page.items.is_empty() { "No requests.".to_owned() } else { view::table(&page.items) };
    more(&mut message, page.next_cursor.as_deref());
    let requests = page.items.into_iter().map(view::info).collect();
    Ok(Answer::ok(RequestListResponse { requests, next_cursor: page.next_cursor, message }))
}
