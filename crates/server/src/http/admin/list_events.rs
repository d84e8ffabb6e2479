//! GET /admin/event/list

use axum::extract::State;
use tarn_api::admin::{EventInfo, EventListResponse};
use tarn_control::operations::admin::{self, Event};
use tarn_control::page::MAX_LIMIT;
use utoipa::IntoParams;

use crate::App;
use crate::http::answer::{Answer, Outcome};
use crate::http::authenticate::Authenticated;
use crate::http::query::{Fields, FromQuery, Params};
use crate::http::table::Table;

/// The parameters of this endpoint.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventsQuery {
    /// Only events with a larger number.
    #[param(required = false, default = 0, minimum = 0)]
    after: i64,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

impl FromQuery for EventsQuery {
    fn from_query(fields: &mut Fields) -> Self {
        let limit = fields.number("limit", 1..=i64::from(MAX_LIMIT));
        EventsQuery {
            after: fields.number("after", 0..=i64::MAX).unwrap_or(0),
            limit: limit.and_then(|limit| u32::try_from(limit).ok()),
        }
    }
}

/// List events
///
/// The event log: who did what to which object, when; oldest first.
#[utoipa::path(
    get,
    path = "/admin/event/list",
    operation_id = "admin_event_list",
    tag = "admin",
    params(EventsQuery),
    responses(
        (status = 200, description = "The events", body = EventListResponse),
        (status = 403, description = "Only administrators of the engine may do this"),
    ),
    security(("HTTPBearer" = [])),
)]
pub(crate) async fn list_events(
    State(app): State<App>,
    Authenticated(caller): Authenticated,
    Params(EventsQuery { after, limit }): Params<EventsQuery>,
) -> Outcome<EventListResponse> {
    let events = admin::events(&app.control, &caller, after, limit).await?;
    let message = if events.is_empty() { "No further events.".to_owned() } else { table(&events) };
    let next_after = events.last().map_or(after, |event| event.number);
    Ok(Answer::ok(EventListResponse { events: events.into_iter().map(info).collect(), next_after, message }))
}

fn table(events: &[Event]) -> String {
    let mut table = Table::new(["NUMBER", "AT", "ACTOR", "VERB", "OBJECT", "DETAIL"], events.len());
    for event in events {
        table.row([&event.number, &event.at, &event.actor, &event.verb, &event.object, &event.detail]);
    }
    table.render()
}

fn info(event: Event) -> EventInfo {
    let Event { number, at, actor, object, verb, detail, .. } = event;
    EventInfo { number, at: at.to_string(), actor, object, verb, detail }
}
