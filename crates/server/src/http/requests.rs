//! The endpoints of the tag `requests`, and the rendering of a request for them and for the operations of a cluster.

use tarn_api::requests::{RequestInfoResponse, RequestListResponse, RequestStatus as Status, RequestType as Type};
use tarn_control::operations::requests::{self, RequestFilter, RequestView};
use tarn_model::requests::{RequestStatus, RequestType};
use utoipa::IntoParams;

use crate::http::input::call::ReadCall;
use crate::http::input::id::Id;
use crate::http::input::listing::{OrgQuery, PageQuery};
use crate::http::input::query::{Fields, FromQuery, Params};
use crate::http::output::response::{EndpointResult, JsonResponse};
use crate::http::output::table::{Dash, Table, append_next_page};

/// Poll a request
///
/// The progress of a request. Poll again after the seconds in Retry-After until it is COMPLETED or FAILED.
#[utoipa::path(
    get,
    path = "/request/info/{request_id}",
    operation_id = "request_info",
    tag = "requests",
    params(("request_id" = String, Path)),
    responses(
        (
            status = 200,
            description = "The request",
            body = RequestInfoResponse,
            headers(("Retry-After" = i32, description = "Seconds; while the request is not COMPLETED or FAILED")),
        ),
        (status = 400, description = "Invalid request ID format"),
        (status = 403, description = "Access denied"),
        (status = 404, description = "Request not found"),
    ),
)]
pub(crate) async fn get_request(call: ReadCall, Id(request): Id) -> EndpointResult<RequestInfoResponse> {
    let found = requests::info(&call.control, &call.caller, &request).await?;
    let ended = found.request.status().is_terminal();
    let response = JsonResponse::ok(request_info(found));
    Ok(if ended { response } else { response.with_retry_after(1) })
}

impl FromQuery for RequestFilter {
    fn from_query(fields: &mut Fields) -> Self {
        let (chosen, OrgQuery { include_org }) = (KindQuery::from_query(fields), OrgQuery::from_query(fields));
        let PageQuery { limit, cursor } = PageQuery::from_query(fields);
        RequestFilter { kind: chosen.kind(), status: chosen.status(), limit, cursor, include_org }
    }
}

/// List requests
///
/// The requests of the caller or, with include_org, all requests of the organization, newest first.
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
)]
pub(crate) async fn list_requests(
    call: ReadCall,
    Params(filter): Params<RequestFilter>,
) -> EndpointResult<RequestListResponse> {
    let page = requests::list(&call.control, &call.caller, filter).await?;
    let mut message = if page.items.is_empty() { "No requests.".to_owned() } else { request_table(&page.items) };
    append_next_page(&mut message, page.next_cursor.as_deref());
    let requests = page.items.into_iter().map(request_info).collect();
    Ok(JsonResponse::ok(RequestListResponse { requests, next_cursor: page.next_cursor, message }))
}

/// The parameters that choose requests.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct KindQuery {
    /// Only requests of this type.
    #[param(rename = "type")]
    kind: Option<Type>,
    /// Only requests in this status.
    status: Option<Status>,
}

impl FromQuery for KindQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let types = RequestType::ALL.map(|kind| (kind.name(), api_request_type(kind)));
        let statuses = RequestStatus::ALL.map(|status| (status.name(), api_request_status(status)));
        KindQuery { kind: fields.choice("type", &types), status: fields.choice("status", &statuses) }
    }
}

impl KindQuery {
    /// Returns the type of the model.
    pub(crate) fn kind(&self) -> Option<RequestType> {
        RequestType::ALL.into_iter().find(|kind| Some(api_request_type(*kind)) == self.kind)
    }

    /// Returns the status of the model.
    pub(crate) fn status(&self) -> Option<RequestStatus> {
        RequestStatus::ALL.into_iter().find(|status| Some(api_request_status(*status)) == self.status)
    }
}

/// Returns a request as JSON.
pub(crate) fn request_info(view: RequestView) -> RequestInfoResponse {
    let RequestView { request, explanation } = view;
    RequestInfoResponse {
        request_type: api_request_type(request.kind.request_type()),
        status: api_request_status(request.status()),
        created_at: request.created.to_string(),
        ended_at: request.ended.map(|time| time.to_string()),
        object_id: Some(request.kind.object_id().to_owned()),
        request_id: request.id.into(),
        external_message: explanation.clone(),
        message: explanation,
    }
}

/// Renders a row for each request.
pub(crate) fn request_table(views: &[RequestView]) -> String {
    let mut table = Table::new(["ID", "TYPE", "STATUS", "OBJECT", "CREATED", "MESSAGE"], views.len());
    for RequestView { request, explanation } in views {
        let (kind, message) = (&request.kind, Dash(explanation.as_deref()));
        let (name, status) = (kind.request_type().name(), request.status().name());
        table.row([&request.id, &name, &status, &kind.object_id(), &request.created, &message]);
    }
    table.render()
}

fn api_request_type(kind: RequestType) -> Type {
    match kind {
        RequestType::ClusterClaim => Type::ClusterClaim,
        RequestType::ClusterRelease => Type::ClusterRelease,
        RequestType::ClusterEdit => Type::ClusterEdit,
        RequestType::ClusterRestart => Type::ClusterRestart,
        RequestType::StorageCreate => Type::StorageCreate,
        RequestType::StorageDestroy => Type::StorageDestroy,
        RequestType::StorageAttach => Type::StorageAttach,
        RequestType::StorageDetach => Type::StorageDetach,
        RequestType::StorageEdit => Type::StorageEdit,
    }
}

fn api_request_status(status: RequestStatus) -> Status {
    match status {
        RequestStatus::Pending => Status::Pending,
        RequestStatus::Processing => Status::Processing,
        RequestStatus::Retrying => Status::Retrying,
        RequestStatus::Completed => Status::Completed,
        RequestStatus::Failed => Status::Failed,
    }
}
