//! Every route with no key, with a wrong key, and with another tenant's key. A route that is not in the table fails.

use std::collections::BTreeMap;

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::jobs::lifecycle::CONFIG;
use crate::support::harness::{Call, DatabaseKind, World};

/// What another tenant's key gets.
enum OtherTenant {
    /// It exists and belongs to another tenant: 403. Path and body name it.
    Forbidden(String, Value),
    /// Only administrators of the engine may do this: 403.
    NotAdmin(String, Value),
    /// The caller may call it, and sees or changes nothing of other tenants.
    Nothing(String, Value),
    /// The same for members of organizations; other users may not call it.
    Member(String),
}

impl OtherTenant {
    /// Path and body of the call.
    fn call(&self, method: &Method) -> (String, Value) {
        match self {
            OtherTenant::Forbidden(path, body)
            | OtherTenant::NotAdmin(path, body)
            | OtherTenant::Nothing(path, body) => (path.clone(), body.clone()),
            OtherTenant::Member(path) if *method == Method::POST => (path.clone(), json!({})),
            OtherTenant::Member(path) => (path.clone(), Value::Null),
        }
    }
}

/// Returns a call of every operation that needs a key, in the order of their ids.
pub(super) fn all_calls(owned: &OwnedResources) -> Vec<(Method, String, Value)> {
    let table = table(owned);
    let call = |(method, _, id): (Method, String, String)| {
        let (path, body) = table[id.as_str()].call(&method);
        (method, path, body)
    };
    operations().into_iter().map(call).collect()
}

/// What the owner has.
pub(super) struct OwnedResources {
    cluster: String,
    volume: String,
    instance: String,
    request: String,
    ssh_key: String,
    user: String,
    access_key: String,
    job: String,
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti a@b";

pub(super) async fn owned(world: &World, key: &str) -> OwnedResources {
    let cluster = world.cluster(key, "secret-cluster").await;
    let volume = world.volume(key, "secret-volume").await;
    let info = world.get(key, &format!("/cluster/info/{cluster}")).await;
    let added = world.post(key, "/user/ssh-key/add", json!({ "public_key": KEY, "name": "secret-key" })).await;
    let requests = world.get(key, "/request/list").await;
    let enabled = world.post(key, "/object-storage/enable", json!({})).await;
    assert_eq!(world.put(key, "/object-storage/bucket/create/secret-bucket").await.status, 201);
    OwnedResources {
        job: world.pending_job(key, &cluster).await,
        instance: info.body["cluster_info"]["instances"][0]["id"].as_str().unwrap().to_owned(),
        request: requests.body["requests"][0]["request_id"].as_str().unwrap().to_owned(),
        ssh_key: added.text("key_id"),
        access_key: enabled.text("access_key_id"),
        user: world.get(key, "/me").await.text("user_id"),
        cluster,
        volume,
    }
}

/// What another tenant gets from every operation, by its id, except operations that need no key.
fn table(owned: &OwnedResources) -> BTreeMap<&'static str, OtherTenant> {
    use OtherTenant::{Forbidden, Member, NotAdmin, Nothing};
    let OwnedResources { cluster, volume, instance, request, ssh_key, user, job, access_key } = owned;
    let none = Value::Null;
    let forbidden = |path: String| Forbidden(path, none.clone());
    let nothing = |path: &str| Nothing(path.to_owned(), none.clone());
    let not_admin = |path: &str| NotAdmin(path.to_owned(), none.clone());
    let attach = json!({ "storage_id": volume, "cluster_ids": [cluster] });
    let detach = json!({ "storage_id": volume, "cluster_id": cluster });
    let create = json!({ "tp_config": CONFIG, "cluster_id": cluster });
    BTreeMap::from([
        ("job_init", nothing("/job/init")),
        ("job_create", Forbidden("/job/create".into(), create)),
        ("job_start", forbidden(format!("/job/start/{job}"))),
        ("job_list", nothing("/job/list?include_org=true&all=true")),
        ("job_info", forbidden(format!("/job/info/{job}"))),
        ("job_logs", forbidden(format!("/job/logs/{job}"))),
        ("job_pull", forbidden(format!("/job/pull/{job}"))),
        ("job_cancel", forbidden(format!("/job/cancel/{job}"))),
        ("job_delete", forbidden(format!("/job/delete/{job}"))),
        ("health", Nothing("/health".into(), json!({}))),
        ("cluster_create", Nothing("/cluster/create".into(), json!({ "instance_type": "1xCPU" }))),
        ("cluster_list", nothing("/cluster/list?include_org=true&all=true")),
        ("cluster_info", forbidden(format!("/cluster/info/{cluster}"))),
        ("cluster_edit", Forbidden(format!("/cluster/edit/{cluster}"), json!({ "deletion_protection": true }))),
        ("cluster_quote", nothing("/cluster/quote?instance_type=1xCPU")),
        ("cluster_types", nothing("/cluster/types")),
        ("cluster_operations", forbidden(format!("/cluster/operations/{cluster}"))),
        ("cluster_restart", forbidden(format!("/cluster/restart/{cluster}"))),
        ("cluster_destroy_cluster__cluster__delete", forbidden(format!("/cluster/{cluster}"))),
        ("storage_create", Nothing("/storage/create".into(), json!({ "size": 1 }))),
        ("storage_list", nothing("/storage/list?include_org=true&all=true")),
        ("storage_info", forbidden(format!("/storage/info/{volume}"))),
        ("storage_edit", Forbidden(format!("/storage/edit/{volume}"), json!({ "size_gb": 20 }))),
        ("storage_quote", nothing("/storage/quote?size_gb=1")),
        ("storage_attach", Forbidden("/storage/attach".into(), attach)),
        ("storage_detach", Forbidden("/storage/detach".into(), detach)),
        ("storage_destroy", forbidden(format!("/storage/{volume}"))),
        ("object_storage_enable", Member("/object-storage/enable".into())),
        ("object_storage_credentials", Member("/object-storage/credentials".into())),
        ("object_storage_rotate_keys", Member("/object-storage/rotate-keys".into())),
        ("object_storage_keys_list", Member("/object-storage/keys?all=true".into())),
        ("object_storage_keys_create", Member("/object-storage/keys/create".into())),
        ("object_storage_keys_revoke", forbidden(format!("/object-storage/keys/revoke/{access_key}"))),
        ("object_storage_keys_retire_legacy", Member("/object-storage/keys/retire-legacy".into())),
        ("object_storage_configure_aws", Member("/object-storage/configure/aws".into())),
        ("object_storage_configure_rclone", Member("/object-storage/configure/rclone".into())),
        ("object_storage_usage", Member("/object-storage/usage".into())),
        ("object_storage_bucket_list", Member("/object-storage/bucket/list".into())),
        ("object_storage_bucket_create", Member("/object-storage/bucket/create/their-own".into())),
        ("object_storage_bucket_delete", Member("/object-storage/bucket/delete/secret-bucket".into())),
        ("object_storage_disable", Member("/object-storage/disable?force=true".into())),
        ("ssh_command", forbidden(format!("/ssh/{instance}"))),
        ("user_info", nothing("/user/info")),
        ("me", nothing("/me")),
        ("user_preferences", nothing("/user/preferences")),
        ("user_preferences_edit", Nothing("/user/preferences".into(), json!({}))),
        ("user_organization_info", nothing("/user/organization/info")),
        ("user_ssh_key_add", Nothing("/user/ssh-key/add".into(), json!({ "public_key": KEY }))),
        ("user_ssh_key_list", nothing("/user/ssh-key/list?include_org=true")),
        ("user_ssh_key_remove", forbidden(format!("/user/ssh-key/remove/{ssh_key}"))),
        ("user_ssh_key_challenge", forbidden(format!("/user/ssh-key/challenge/{ssh_key}"))),
        (
            "user_ssh_key_prove",
            Forbidden(format!("/user/ssh-key/prove/{ssh_key}"), json!({ "challenge": "x", "signature": "x" })),
        ),
        ("request_info", forbidden(format!("/request/info/{request}"))),
        ("request_list", nothing("/request/list?include_org=true")),
        ("admin_user_create", NotAdmin("/admin/user/create".into(), json!({ "email": "x@y" }))),
        ("admin_user_list", not_admin("/admin/user/list")),
        ("admin_limits_list", not_admin("/admin/limits")),
        ("admin_limits_info", not_admin(&format!("/admin/limits/{user}"))),
        ("admin_limits_edit", NotAdmin(format!("/admin/limits/{user}"), json!({ "gpus": 100 }))),
        ("admin_limits_clear", not_admin(&format!("/admin/limits/{user}"))),
        ("admin_user_disable", not_admin(&format!("/admin/user/disable/{user}"))),
        ("admin_user_enable", not_admin(&format!("/admin/user/enable/{user}"))),
        ("admin_key_create", NotAdmin("/admin/key/create".into(), json!({ "user_id": user }))),
        ("admin_key_list", not_admin("/admin/key/list")),
        ("admin_key_revoke", not_admin("/admin/key/revoke/a-000000000000")),
        ("admin_grant", NotAdmin("/admin/grant".into(), json!({ "to": user, "amount": 1 }))),
        ("admin_event_list", not_admin("/admin/event/list")),
        ("admin_host_info", not_admin("/admin/host/info")),
        ("admin_host_drain", NotAdmin("/admin/host/drain".into(), json!({}))),
        ("admin_host_undrain", not_admin("/admin/host/undrain")),
        ("admin_gpu_list", not_admin("/admin/gpu/list")),
        ("admin_gpu_drain", NotAdmin("/admin/gpu/drain/gpu-0".into(), json!({}))),
        ("admin_gpu_undrain", not_admin("/admin/gpu/undrain/gpu-0")),
        ("admin_gpu_clear", not_admin("/admin/gpu/clear/gpu-0")),
    ])
}

/// Method, path and id of every documented operation that needs a key.
fn operations() -> Vec<(Method, String, String)> {
    let document = tarn_server::openapi();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            if operation["security"] == json!([]) {
                // Signatures are tried in `jobs`.
                assert!(["healthz", "job_upload", "job_files", "job_output"].contains(&id.as_str()), "{id}");
            } else {
                found.push((method.to_uppercase().parse().unwrap(), path.clone(), id));
            }
        }
    }
    found
}

/// A missing or wrong key is refused before anything else is checked.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn missing_or_wrong_key_is_refused_first(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let disabled = world.user("gone@example.org", None).await;
    let id = world.get(&disabled, "/me").await.text("user_id");
    assert_eq!(world.post(&world.admin, &format!("/admin/user/disable/{id}"), json!({})).await.status, 200);
    let long = format!("Bearer {}", "x".repeat(5000));
    let wrong = [
        None,
        Some("Bearer tp-0000000000000000000000000000000000000000".to_owned()),
        Some(format!("Bearer {disabled}")),
        Some(format!("Basic {}", world.admin)),
        Some(world.admin.clone()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some("Bearer é' or 1=1 --".to_owned()),
        Some(long),
    ];
    for (method, path, id) in operations() {
        for header in &wrong {
            // Path, query and body are nonsense: a key must be asked for before anyone notices.
            let path = format!("{}?limit=x&system=y&size_gb=z", path.replace(['{', '}'], "!"));
            let mut call = Call::new(method.clone(), &path).raw(b"{nonsense");
            if let Some(header) = header {
                call = call.header("authorization", header.as_bytes());
            }
            let refused = world.call(call).await;
            assert_eq!(refused.status, 401, "{id} {header:?}");
            assert_eq!(refused.headers["www-authenticate"], "Bearer");
        }
    }
}

/// No route gives a tenant anything of another tenant.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn other_tenant_is_denied_everywhere(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
    #[values(None, Some("evil"))] org: Option<&str>,
) {
    let Some(world) = World::open(database).await else { return };
    let owner = world.user("ada@example.org", Some("acme")).await;
    let stranger = world.user("eve@example.org", org).await;
    let owned = owned(&world, &owner).await;
    let mut table = table(&owned);
    for (method, _, id) in operations() {
        let Some(expected) = table.remove(id.as_str()) else {
            panic!("{id} has no test of who may call it; add it to the table");
        };
        let (path, body) = expected.call(&method);
        let call = Call::new(method, &path).key(&stranger).header("host", b"engine");
        let answer = world.call(if body.is_null() { call } else { call.json(&body) }).await;
        match expected {
            OtherTenant::Forbidden(..) | OtherTenant::NotAdmin(..) => {
                assert_eq!(answer.refusal(), (403, "access_denied".to_owned()), "{id}");
            }
            OtherTenant::Member(..) if org.is_none() => {
                assert_eq!(answer.refusal(), (403, "no_organization".to_owned()), "{id}");
            }
            OtherTenant::Nothing(..) | OtherTenant::Member(..) => {
                assert!(matches!(answer.status, 200 | 201 | 202 | 404), "{id} {answer:?}");
                let text = answer.body.to_string();
                let said = text.replace("'secret-bucket'", "what they typed");
                for secret in [
                    "secret-",
                    &owned.cluster,
                    &owned.volume,
                    &owned.ssh_key,
                    &owned.user,
                    &owned.access_key,
                    &owned.job,
                    "ada@example.org",
                ] {
                    assert!(!said.contains(secret), "{id} shows {secret}: {text}");
                }
            }
        }
    }
    assert!(table.is_empty(), "no such operations: {:?}", table.keys());
    let unchanged = world.get(&owner, &format!("/cluster/info/{}", owned.cluster)).await;
    assert_eq!(unchanged.body["cluster_info"]["status"], "RUNNING");
    assert_eq!(unchanged.body["cluster_info"]["deletion_protection"], false);
    let buckets = world.get(&owner, "/object-storage/bucket/list").await;
    assert_eq!(buckets.body["buckets"], json!(["secret-bucket"]));
    let keys = world.get(&owner, "/object-storage/credentials").await;
    assert_eq!(keys.text("access_key_id"), owned.access_key);
}

/// The name of another tenant's resource counts as unknown.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn name_of_other_tenant_is_unknown(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let owner = world.user("ada@example.org", Some("acme")).await;
    let stranger = world.user("eve@example.org", Some("evil")).await;
    let owned = owned(&world, &owner).await;
    let mine = world.volume(&stranger, "mine").await;
    let calls = [
        Call::new(Method::GET, "/cluster/info/secret-cluster"),
        Call::new(Method::GET, "/cluster/operations/secret-cluster"),
        Call::new(Method::DELETE, "/cluster/secret-cluster"),
        Call::new(Method::POST, "/cluster/restart/secret-cluster"),
        Call::new(Method::PATCH, "/cluster/edit/secret-cluster").json(&json!({ "deletion_protection": true })),
        Call::new(Method::POST, "/storage/attach")
            .json(&json!({ "storage_id": mine, "cluster_ids": ["secret-cluster"] })),
        Call::new(Method::POST, "/storage/detach").json(&json!({ "storage_id": mine, "cluster_id": "secret-cluster" })),
        Call::new(Method::GET, "/cluster/info/c-000000000000"),
        Call::new(Method::DELETE, "/storage/s-000000000000"),
    ];
    for call in calls {
        assert_eq!(world.call(call.key(&stranger)).await.refusal(), (404, "not_found".to_owned()));
    }
    let body = json!({ "storage_id": mine, "cluster_ids": [owned.cluster] });
    let foreign = world.post(&stranger, "/storage/attach", body).await;
    assert_eq!(foreign.refusal(), (403, "access_denied".to_owned()), "their volume, another's cluster");
    let same_name = world
        .post(&stranger, "/cluster/create", json!({ "instance_type": "1xCPU", "tp_cluster_name": "secret-cluster" }))
        .await;
    assert_eq!(same_name.status, 202, "names of tenants do not meet");
}
