//! How a request looks, and how requests are chosen.

use tarn_api::requests::{RequestInfoResponse, RequestStatus as Status, RequestType as Type};
use tarn_control::operations::requests::RequestView;
use tarn_model::requests::{RequestStatus, RequestType};
use utoipa::IntoParams;

use crate::http::query::{Fields, FromQuery};
use crate::http::table::{Dash, Table};

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
        let types = RequestType::ALL.map(|kind| (kind.name(), type_of(kind)));
        let statuses = RequestStatus::ALL.map(|status| (status.name(), status_of(status)));
        KindQuery { kind: fields.choice("type", &types), status: fields.choice("status", &statuses) }
    }
}

impl KindQuery {
    /// The type in the words of the model.
    pub(crate) fn kind(&self) -> Option<RequestType> {
        RequestType::ALL.into_iter().find(|kind| Some(type_of(*kind)) == self.kind)
    }

    /// The status in the words of the model.
    pub(crate) fn status(&self) -> Option<RequestStatus> {
        RequestStatus::ALL.into_iter().find(|status| Some(status_of(*status)) == self.status)
    }
}

/// A request as JSON.
pub(crate) fn info(view: RequestView) -> RequestInfoResponse {
    let RequestView { request, explanation } = view;
    RequestInfoResponse {
        request_type: type_of(request.kind),
        status: status_of(request.status),
        created_at: request.created.to_string(),
        ended_at: request.ended.map(|time| time.to_string()),
        object_id: request.object_id().map(str::to_owned),
        request_id: request.id.into(),
        external_message: explanation.clone(),
        message: explanation,
    }
}

/// A row for each request.
pub(crate) fn table(views: &[RequestView]) -> String {
    let mut table = Table::new(["ID", "TYPE", "STATUS", "OBJECT", "CREATED", "MESSAGE"], views.len());
    for RequestView { request, explanation } in views {
        let (object, message) = (Dash(request.object_id()), Dash(explanation.as_deref()));
        table.row([&request.id, &request.kind.name(), &request.status.name(), &object, &request.created, &message]);
    }
    table.render()
}

fn type_of(kind: RequestType) -> Type {
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

fn status_of(status: RequestStatus) -> Status {
    match status {
        RequestStatus::Pending => Status::Pending,
        RequestStatus::Processing => Status::Processing,
        RequestStatus::Retrying => Status::Retrying,
        RequestStatus::Completed => Status::Completed,
        RequestStatus::Failed => Status::Failed,
    }
}
