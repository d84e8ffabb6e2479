//! Looking at requests.

use tarn_model::ids::RequestId;
use tarn_model::requests::{Request, RequestStatus, RequestType};
use tarn_store::{Tx, requests};

use super::whose;
use crate::explain::Explainer;
use crate::page::{self, cut, decode_cursor};
use crate::{Caller, Control, Error, Page, Result};

/// A request with what it does now, or what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestView {
    /// The request.
    pub request: Request,
    /// For a person.
    pub explanation: Option<String>,
}

impl RequestView {
    pub(super) fn of(explainer: &mut Explainer<'_>, tx: &mut Tx<'_>, request: Request) -> Result<Self> {
        let explanation = explainer.request(tx, &request)?;
        Ok(RequestView { request, explanation })
    }
}

/// Which requests a caller wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestFilter {
    /// Of this kind only.
    pub kind: Option<RequestType>,
    /// In this status only.
    pub status: Option<RequestStatus>,
    /// At most so many.
    pub limit: Option<u32>,
    /// Where the previous page ended.
    pub cursor: Option<String>,
    /// Everything of the caller's organization.
    pub include_org: bool,
}

/// One request.
pub async fn info(control: &Control, caller: &Caller, request: &str) -> Result<RequestView> {
    let id: RequestId = request.parse()?;
    let read = control.store().read(|tx| -> Result<RequestView> {
        let found = requests::get(tx, &id)?.ok_or_else(|| Error::not_found("request", request))?;
        caller.must_own(&found.owner, "request", request)?;
        RequestView::of(&mut Explainer::new(control), tx, found)
    });
    read.await
}

/// The caller's requests, or his organization's, newest first.
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
        let views = page.items.into_iter().map(|request| RequestView::of(&mut explainer, tx, request));
        let items = views.collect::<Result<_>>()?;
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}
