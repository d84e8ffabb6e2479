//! What holds for every route: access, bodies, cost, errors, idempotency, lists and the OpenAPI document.

mod authorization;
mod bodies;
mod cost;
mod errors;
mod idempotency;
mod lists;
mod member_access;
mod openapi;
