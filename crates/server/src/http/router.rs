//! Every route of the API on one page.

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::authenticate::authenticate;
use super::failure::Failure;
use super::observe::observe;
use super::remember::remember;
use super::{
    admin, clusters, health, host, jobs, limits, object_storage, openapi, requests, ssh, ssh_keys, storage, users,
};
use crate::App;

/// The whole API in front of `app`.
pub fn router(app: App) -> Router {
    let secured = secured()
        .route_layer(from_fn_with_state(app.clone(), remember))
        .route_layer(from_fn_with_state(app.clone(), authenticate));
    let (router, _) = open().merge(secured).split_for_parts();
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), observe))
        .with_state(app)
}

/// Every documented route, without what stands in front of them.
pub(crate) fn documented() -> OpenApiRouter<App> {
    open().merge(secured())
}

/// What needs no key.
fn open() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::frame())
        .routes(routes!(health::healthz::healthz))
        .route("/openapi.json", get(openapi::serve))
        // Their signatures stand for a key.
        .routes(routes!(jobs::upload::upload))
        .routes(routes!(jobs::files::files))
        .routes(routes!(jobs::output::output))
        // WebSockets: the key comes in the first frame.
        .route("/job/push", get(jobs::push::push))
        .route("/job/listen/{job_id}", get(jobs::listen::listen))
}

/// What needs a key.
fn secured() -> OpenApiRouter<App> {
    let router = OpenApiRouter::new()
        .routes(routes!(health::health::health))
        // jobs
        .routes(routes!(jobs::init::init))
        .routes(routes!(jobs::create::create))
        .routes(routes!(jobs::start::start))
        .routes(routes!(jobs::list::list))
        .routes(routes!(jobs::info::info))
        .routes(routes!(jobs::logs::logs))
        .routes(routes!(jobs::pull::pull))
        .routes(routes!(jobs::cancel::cancel))
        .routes(routes!(jobs::delete::delete))
        // clusters
        .routes(routes!(clusters::create::create))
        .routes(routes!(clusters::list::list))
        .routes(routes!(clusters::info::info))
        .routes(routes!(clusters::edit::edit))
        .routes(routes!(clusters::quote::quote))
        .routes(routes!(clusters::types::types))
        .routes(routes!(clusters::operations::operations))
        .routes(routes!(clusters::restart::restart))
        .routes(routes!(clusters::destroy::destroy))
        // storage
        .routes(routes!(storage::create::create))
        .routes(routes!(storage::list::list))
        .routes(routes!(storage::info::info))
        .routes(routes!(storage::edit::edit))
        .routes(routes!(storage::quote::quote))
        .routes(routes!(storage::attach::attach))
        .routes(routes!(storage::detach::detach))
        .routes(routes!(storage::destroy::destroy))
        // object storage
        .routes(routes!(object_storage::enable::enable))
        .routes(routes!(object_storage::disable::disable))
        .routes(routes!(object_storage::credentials::credentials))
        .routes(routes!(object_storage::rotate_keys::rotate_keys))
        .routes(routes!(object_storage::configure_aws::configure_aws))
        .routes(routes!(object_storage::configure_rclone::configure_rclone))
        .routes(routes!(object_storage::usage::usage))
        .routes(routes!(object_storage::list_buckets::list_buckets))
        .routes(routes!(object_storage::create_bucket::create_bucket))
        .routes(routes!(object_storage::delete_bucket::delete_bucket))
        // ssh
        .routes(routes!(ssh::command::command))
        // users
        .routes(routes!(users::info::info))
        .routes(routes!(users::me::me))
        .routes(routes!(users::preferences::preferences, users::edit_preferences::edit_preferences))
        .routes(routes!(users::organization::organization))
        .routes(routes!(ssh_keys::add::add))
        .routes(routes!(ssh_keys::list::list))
        .routes(routes!(ssh_keys::remove::remove))
        // requests
        .routes(routes!(requests::info::info))
        .routes(routes!(requests::list::list))
        // administration
        .routes(routes!(admin::create_user::create_user))
        .routes(routes!(admin::list_users::list_users))
        .routes(routes!(admin::disable_user::disable_user))
        .routes(routes!(admin::enable_user::enable_user))
        .routes(routes!(admin::create_key::create_key))
        .routes(routes!(admin::list_keys::list_keys))
        .routes(routes!(admin::revoke_key::revoke_key))
        .routes(routes!(admin::grant::grant))
        .routes(routes!(limits::list::list))
        .routes(routes!(limits::info::info, limits::edit::edit, limits::clear::clear))
        .routes(routes!(admin::list_events::list_events))
        .routes(routes!(host::info::info))
        .routes(routes!(host::drain::drain))
        .routes(routes!(host::undrain::undrain))
        .routes(routes!(host::list_gpus::list_gpus))
        .routes(routes!(host::drain_gpu::drain_gpu))
        .routes(routes!(host::undrain_gpu::undrain_gpu))
        .routes(routes!(host::clear_gpu::clear_gpu));
    // A cluster may be called like a verb of this API, and it must be possible to destroy it by that name.
    ["create", "list", "quote", "types"]
        .into_iter()
        .fold(router, |router, verb| router.route(&format!("/cluster/{verb}"), delete(clusters::destroy::destroy)))
}

async fn unknown_route(method: Method, uri: Uri) -> Failure {
    let path: String = uri.path().chars().take(200).collect();
    let message = format!("there is no {method} {path}; /openapi.json lists what there is");
    Failure::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

async fn wrong_method(method: Method) -> Failure {
    let message = format!("this path does not take {method}; /openapi.json lists what it takes");
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}
