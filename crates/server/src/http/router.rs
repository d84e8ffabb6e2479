//! Every route of the API on one page: method, path and handler.
//!
//! The method and the path of a documented route are declared at its handler, where `utoipa` reads them. The page
//! repeats them, and a test fails when the two differ.

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, get, on};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::middleware::authenticate::authenticate;
use super::middleware::observe::observe;
use super::middleware::response_cache::serve_from_cache;
use super::output::failure::Failure;
use super::{
    admin, clusters, health, host, jobs, limits, object_storage, openapi, requests, ssh, ssh_keys, storage, users,
};
use crate::App;

/// Turns a part of the page into a function that registers its routes, and into a list of methods and paths.
macro_rules! page {
    ($register:ident, $listed:ident: $($method:ident $path:literal $($handler:ident)::+;)+) => {
        fn $register(router: OpenApiRouter<App>) -> OpenApiRouter<App> {
            router$(.routes(routes!($($handler)::+)))+
        }

        const $listed: &[(&str, &str)] = &[$((stringify!($method), $path)),+];
    };
}

// These need no key. The URLs of the job routes carry a signature instead.
page! { register_open_routes, OPEN_ROUTES:
    GET    "/healthz"                                     health::healthz;
    PUT    "/job/upload/{job_id}"                         jobs::transfer::upload::upload_files;
    GET    "/job/files/{job_id}"                          jobs::transfer::file_list::get_file_list;
    GET    "/job/output/{job_id}"                         jobs::transfer::output::get_output;
}

// These need a key.
page! { register_secured_routes, SECURED_ROUTES:
    POST   "/health"                                      health::check_client;

    GET    "/job/init"                                    jobs::init::get_job_template;
    POST   "/job/create"                                  jobs::create::create_job;
    POST   "/job/start/{job_id}"                          jobs::start::start_job;
    GET    "/job/list"                                    jobs::list::list_jobs;
    GET    "/job/info/{job_id}"                           jobs::info::get_job;
    GET    "/job/logs/{job_id}"                           jobs::logs::get_job_log;
    GET    "/job/pull/{job_id}"                           jobs::transfer::pull::pull_outputs;
    POST   "/job/cancel/{job_id}"                         jobs::cancel::cancel_job;
    DELETE "/job/delete/{job_id}"                         jobs::delete::delete_job;

    POST   "/cluster/create"                              clusters::create::create_cluster;
    GET    "/cluster/list"                                clusters::list::list_clusters;
    GET    "/cluster/info/{cluster}"                      clusters::info::get_cluster;
    PATCH  "/cluster/edit/{cluster}"                      clusters::edit::edit_cluster;
    GET    "/cluster/quote"                               clusters::quote::quote_cluster;
    GET    "/cluster/types"                               clusters::types::list_instance_types;
    GET    "/cluster/operations/{cluster}"                clusters::operations::list_cluster_operations;
    POST   "/cluster/restart/{cluster}"                   clusters::restart::restart_cluster;
    DELETE "/cluster/{cluster}"                           clusters::destroy::destroy_cluster;

    POST   "/storage/create"                              storage::create::create_volume;
    GET    "/storage/list"                                storage::list::list_volumes;
    GET    "/storage/info/{storage_id}"                   storage::info::get_volume;
    PATCH  "/storage/edit/{storage_id}"                   storage::edit::edit_volume;
    GET    "/storage/quote"                               storage::quote::quote_volume;
    POST   "/storage/attach"                              storage::attach::attach_volume;
    POST   "/storage/detach"                              storage::detach::detach_volume;
    DELETE "/storage/{storage_id}"                        storage::destroy::destroy_volume;

    POST   "/object-storage/enable"                       object_storage::enable_object_storage;
    DELETE "/object-storage/disable"                      object_storage::disable_object_storage;
    GET    "/object-storage/credentials"                  object_storage::get_credentials;
    POST   "/object-storage/rotate-keys"                  object_storage::keys::rotate_keys;
    GET    "/object-storage/keys"                         object_storage::keys::list_keys;
    POST   "/object-storage/keys/create"                  object_storage::keys::create_key;
    DELETE "/object-storage/keys/revoke/{key_id}"         object_storage::keys::revoke_key;
    POST   "/object-storage/keys/retire-legacy"           object_storage::keys::retire_legacy_key;
    GET    "/object-storage/configure/aws"                object_storage::configure_aws;
    GET    "/object-storage/configure/rclone"             object_storage::configure_rclone;
    GET    "/object-storage/usage"                        object_storage::get_usage;
    GET    "/object-storage/bucket/list"                  object_storage::list_buckets;
    PUT    "/object-storage/bucket/create/{bucket_name}"  object_storage::create_bucket;
    DELETE "/object-storage/bucket/delete/{bucket_name}"  object_storage::delete_bucket;

    GET    "/ssh/{instance_id}"                           ssh::get_ssh_command;

    GET    "/user/info"                                   users::get_user;
    GET    "/me"                                          users::get_me;
    GET    "/user/preferences"                            users::get_preferences;
    PATCH  "/user/preferences"                            users::edit_preferences;
    GET    "/user/organization/info"                      users::get_organization;
    POST   "/user/ssh-key/add"                            ssh_keys::add_ssh_key;
    GET    "/user/ssh-key/list"                           ssh_keys::list_ssh_keys;
    DELETE "/user/ssh-key/remove/{key_id}"                ssh_keys::remove_ssh_key;
    GET    "/user/ssh-key/challenge/{key_id}"             ssh_keys::get_ssh_key_challenge;
    POST   "/user/ssh-key/prove/{key_id}"                 ssh_keys::prove_ssh_key;

    GET    "/request/info/{request_id}"                   requests::get_request;
    GET    "/request/list"                                requests::list_requests;

    POST   "/admin/user/create"                           admin::create_user;
    GET    "/admin/user/list"                             admin::list_users;
    POST   "/admin/user/disable/{user_id}"                admin::disable_user;
    POST   "/admin/user/enable/{user_id}"                 admin::enable_user;
    POST   "/admin/key/create"                            admin::create_key;
    GET    "/admin/key/list"                              admin::list_keys;
    DELETE "/admin/key/revoke/{key_id}"                   admin::revoke_key;
    POST   "/admin/grant"                                 admin::grant_balance;
    GET    "/admin/event/list"                            admin::list_events;
    GET    "/admin/limits"                                limits::list_limits;
    GET    "/admin/limits/{scope}"                        limits::get_limits;
    PATCH  "/admin/limits/{scope}"                        limits::edit_limits;
    DELETE "/admin/limits/{scope}"                        limits::clear_limits;
    GET    "/admin/host/info"                             host::get_host;
    POST   "/admin/host/drain"                            host::drain_host;
    POST   "/admin/host/undrain"                          host::undrain_host;
    GET    "/admin/gpu/list"                              host::list_gpus;
    POST   "/admin/gpu/drain/{gpu_id}"                    host::drain_gpu;
    POST   "/admin/gpu/undrain/{gpu_id}"                  host::undrain_gpu;
    POST   "/admin/gpu/clear/{gpu_id}"                    host::clear_gpu;
}

/// Registers the open routes that are not in the OpenAPI document: the document itself, and the WebSockets, whose key
/// comes in the first frame.
fn register_undocumented_open_routes(router: OpenApiRouter<App>) -> OpenApiRouter<App> {
    router
        .route("/openapi.json", get(openapi::serve_openapi))
        .route("/job/push", get(jobs::push::push_job))
        .route("/job/listen/{job_id}", get(jobs::listen::listen_to_job))
}

/// The whole API in front of `app`.
pub fn router(app: App) -> Router {
    let secured = secured_routes()
        .route_layer(from_fn_with_state(app.clone(), serve_from_cache))
        .route_layer(from_fn_with_state(app.clone(), authenticate));
    let (router, _) = open_routes().merge(secured).split_for_parts();
    register_bare_verbs(router)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), observe))
        .with_state(app)
}

/// All routes without their middleware, for the OpenAPI document.
pub(crate) fn documented_routes() -> OpenApiRouter<App> {
    open_routes().merge(secured_routes())
}

fn open_routes() -> OpenApiRouter<App> {
    register_undocumented_open_routes(register_open_routes(OpenApiRouter::with_openapi(openapi::base_document())))
}

fn secured_routes() -> OpenApiRouter<App> {
    register_secured_routes(OpenApiRouter::new())
}

/// Registers the paths that end with a verb where a name has to follow. They would be read as names: the cluster that
/// `DELETE /cluster/info` destroys is not named `info`.
fn register_bare_verbs(router: Router<App>) -> Router<App> {
    bare_verbs().fold(router, |router, (method, path)| {
        let method = Method::from_bytes(method.as_bytes()).ok().and_then(|method| MethodFilter::try_from(method).ok());
        router.route(path, on(method.expect("the page has methods that axum knows"), missing_name))
    })
}

/// The methods and paths of the page without the name at their ends, where a name in the place of the verb has a route.
fn bare_verbs() -> impl Iterator<Item = (&'static str, &'static str)> {
    let is_name = |part: &str| part.starts_with('{');
    let all = || OPEN_ROUTES.iter().chain(SECURED_ROUTES);
    all().filter_map(move |(method, path)| {
        let (bare, name) = path.rsplit_once('/')?;
        let (noun, verb) = bare.rsplit_once('/')?;
        let has_names = |(_, other): &(&str, &str)| {
            other.rsplit_once('/').is_some_and(|(left, right)| left == noun && is_name(right))
        };
        (is_name(name) && !is_name(verb) && all().any(has_names)).then_some((*method, bare))
    })
}

async fn missing_name(method: Method, uri: Uri) -> Failure {
    let path = uri.path();
    let message =
        format!("{method} {path} needs a name or an id at its end: {path}/…; /openapi.json lists what there is");
    Failure::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

async fn unknown_route(method: Method, uri: Uri) -> Failure {
    let path = tarn_base::plain(uri.path(), 200);
    let message = format!("there is no {method} {path}; /openapi.json lists what there is");
    Failure::new(StatusCode::NOT_FOUND, "unknown_route", message)
}

async fn wrong_method(method: Method) -> Failure {
    let message = format!("this path does not take {method}; /openapi.json lists what it takes");
    Failure::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The methods and paths that the handlers declare, in alphabetical order.
    fn declared(routes: OpenApiRouter<App>) -> Vec<(String, String)> {
        let (_, document) = routes.split_for_parts();
        let document = serde_json::to_value(document).unwrap();
        let mut declared = Vec::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            let methods = operations.as_object().unwrap().keys();
            declared.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
        declared.sort();
        declared
    }

    /// Every line of the page has the method and the path that its handler declares.
    #[test]
    fn page_matches_handlers() {
        for (routes, page) in [(open_routes(), OPEN_ROUTES), (secured_routes(), SECURED_ROUTES)] {
            let mut page: Vec<(String, String)> =
                page.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
            page.sort();
            assert_eq!(declared(routes), page);
        }
    }

    /// A verb without the name that has to follow is not read as a name.
    #[test]
    fn verbs_without_names_have_routes() {
        let found: Vec<String> = bare_verbs().map(|(method, path)| format!("{method} {path}")).collect();
        let expected = [
            "GET /cluster/info",
            "PATCH /cluster/edit",
            "GET /cluster/operations",
            "POST /cluster/restart",
            "GET /storage/info",
            "PATCH /storage/edit",
        ];
        assert_eq!(found, expected);
    }

    /// A word that a path has in the place of a name is reserved: an object with that name could not be reached by it.
    #[test]
    fn words_in_place_of_names_are_reserved() {
        use tarn_model::names::{BadName, check_new};
        let paths = OPEN_ROUTES.iter().chain(SECURED_ROUTES).map(|(_, path)| *path);
        let words = paths.filter_map(|path| path.strip_prefix("/cluster/").or_else(|| path.strip_prefix("/storage/")));
        let words = words.filter_map(|rest| rest.split('/').next()).filter(|word| !word.starts_with('{'));
        let mut count = 0;
        for word in words {
            assert!(matches!(check_new(word), Err(BadName::Reserved(_))), "{word} is not in RESERVED");
            count += 1;
        }
        assert!(count > 10, "only {count} words were found");
    }
}
