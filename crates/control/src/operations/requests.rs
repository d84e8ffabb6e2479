//! Reading requests.

use tarn_model::ids::RequestId;
use tarn_model::requests::{Request, RequestStatus, RequestType};
use tarn_store::{Tx, requests};

use super::whose;
use crate::explain::Explainer;
use crate::page::{self, cut, decode_cursor};
use crate::{Caller, Control, Error, Page, Result};

/// A request with an explanation of what it is doing, or of how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestView {
    pub request: Request,
    pub explanation: Option<String>,
}

impl RequestView {
    pub(super) fn explained(explainer: &mut Explainer<'_>, tx: &mut Tx<'_>, request: Request) -> Result<Self> {
        let explanation = explainer.explain_request(tx, &request)?;
        Ok(RequestView { request, explanation })
    }
}

/// Which requests to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    pub kind: Option<RequestType>,
    pub status: Option<RequestStatus>,
    pub limit: Option<u32>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Lists everything of the caller's organization.
    pub include_org: bool,
}

/// Returns one request.
pub async fn info(control: &Control, caller: &Caller, request: &str) -> Result<RequestView> {
    let id: RequestId = request.parse()?;
    let read = control.store().read(|tx| -> Result<RequestView> {
        let found = requests::get(tx, &id)?.ok_or_else(|| Error::not_found("request", request))?;
        caller.must_own(&found.owner, "request", request)?;
        RequestView::explained(&mut Explainer::new(control), tx, found)
    });
    read.await
}

/// Lists the requests of the caller, or of the caller's organization, newest first.
pub async fn list(control: &Control, caller: &Caller, filter: RequestFilter) -> Result<Page<RequestView>> {
    let after = decode_cursor(filter.cursor.as_deref(), RequestId::PREFIX)?;
    let limit = page::limit(filter.limit)?;
    let read = control.store().read(|tx| -> Result<Page<RequestView>> {
        let asked = tarn_store::Listing {
            owner: whose(caller, filter.include_org),
            all: true,
            after: after.as_ref().map(|(time, id)| (*time, id.as_str())),
            limit: limit + 1,
        };
        let kind = filter.kind.map_or("", RequestType::name);
        let found = requests::list(tx, &asked, kind, filter.status)?;
        let page = cut(found, limit, |request| (request.created, request.id.to_string()));
        let mut explainer = Explainer::new(control);
        let views = page.items.into_iter().map(|request| RequestView::explained(&mut explainer, tx, request));
        let items = views.collect::<Result<_>>()?;
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}
