//! Every action of the access table through HTTP: as another member of the organization, as the creator, as an
//! administrator of the organization, and where the operator lets members destroy.

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tarn_control::Settings;
use tarn_control::testing::Setup;
use tarn_model::access::{Action, Policy};
use tarn_model::capacity::Inventory;
use tarn_store::testing::set_legacy_key;

use crate::jobs::lifecycle::CONFIG;
use crate::support::harness::{Answer, Call, DatabaseKind, World, unlimited, usual};

/// The members of one organization, by their keys.
struct Members {
    /// Its administrator.
    ada: String,
    /// Creates what the actions are about.
    ben: String,
    /// Another member.
    cyd: String,
}

/// A call that its caller has not sent yet.
struct Attempt {
    method: Method,
    path: String,
    body: Value,
}

impl Attempt {
    fn new(method: Method, path: String) -> Self {
        Attempt { method, path, body: json!({}) }
    }

    fn with(self, body: Value) -> Self {
        Attempt { body, ..self }
    }

    async fn by(&self, world: &World, key: &str) -> Answer {
        let call = Call::new(self.method.clone(), &self.path).key(key).header("host", b"engine");
        let call = if self.method == Method::DELETE { call } else { call.json(&self.body) };
        world.call(call).await
    }
}

/// A world with room for all clusters, and an organization in it.
async fn organization(database: DatabaseKind, policy: Policy) -> Option<(World, Members)> {
    let setup = usual();
    let setup = Setup {
        inventory: Inventory { cpu_milli: 128_000, memory_bytes: 512 << 30, ..setup.inventory },
        settings: Settings { access: policy, ..setup.settings },
        ..setup
    };
    let world = World::on(tarn_store::testing::World::open(database).await?, unlimited(), setup).await;
    let members = Members {
        ada: world.user("ada@example.org", Some("acme")).await,
        ben: world.user("ben@example.org", Some("acme")).await,
        cyd: world.user("cyd@example.org", Some("acme")).await,
    };
    assert_eq!(world.post(&members.ada, "/object-storage/enable", json!({})).await.status, 200);
    Some((world, members))
}

/// Lets Ben create what the action is about, and returns the call of `caller`. What else the call needs is the
/// caller's own.
async fn prepare(world: &World, members: &Members, action: Action, caller: &str, name: &str) -> Attempt {
    let (ada, ben) = (members.ada.as_str(), members.ben.as_str());
    let own = format!("{name}-own");
    match action {
        Action::Use => {
            let cluster = world.cluster(ben, name).await;
            Attempt::new(Method::PATCH, format!("/cluster/edit/{cluster}")).with(json!({ "deletion_protection": true }))
        }
        Action::DestroyCluster => Attempt::new(Method::DELETE, format!("/cluster/{}", world.cluster(ben, name).await)),
        Action::RestartCluster => {
            Attempt::new(Method::POST, format!("/cluster/restart/{}", world.cluster(ben, name).await))
        }
        Action::UnprotectCluster => {
            let path = format!("/cluster/edit/{}", world.cluster(ben, name).await);
            assert_eq!(world.patch(ben, &path, json!({ "deletion_protection": true })).await.status, 202);
            Attempt::new(Method::PATCH, path).with(json!({ "deletion_protection": false }))
        }
        Action::TearDownCluster => {
            let cluster = world.cluster(ben, name).await;
            let body = json!({ "tp_config": CONFIG, "cluster_id": cluster, "files": false, "start": true, "teardown_cluster": true });
            Attempt::new(Method::POST, "/job/create".to_owned()).with(body)
        }
        Action::AttachToCluster => attachment(&world.volume(caller, &own).await, &world.cluster(ben, name).await),
        Action::AttachVolume => attachment(&world.volume(ben, name).await, &world.cluster(caller, &own).await),
        Action::DetachFromCluster => {
            let (volume, cluster) = (world.volume(caller, &own).await, world.cluster(ben, name).await);
            detachment(world, ada, &volume, &cluster).await
        }
        Action::DetachVolume => {
            let (volume, cluster) = (world.volume(ben, name).await, world.cluster(caller, &own).await);
            detachment(world, ada, &volume, &cluster).await
        }
        Action::DestroyVolume => Attempt::new(Method::DELETE, format!("/storage/{}", world.volume(ben, name).await)),
        Action::UnprotectVolume => {
            let path = format!("/storage/edit/{}", world.volume(ben, name).await);
            assert_eq!(world.patch(ben, &path, json!({ "deletion_protection": true })).await.status, 202);
            Attempt::new(Method::PATCH, path).with(json!({ "deletion_protection": false }))
        }
        Action::CancelJob => {
            // The cluster is the caller's: a job still belongs to the member who pushed it.
            let job = world.pending_job(ben, &world.cluster(caller, name).await).await;
            Attempt::new(Method::POST, format!("/job/cancel/{job}"))
        }
        Action::DeleteJob => {
            let job = world.pending_job(ben, &world.cluster(caller, name).await).await;
            assert_eq!(world.post(ben, &format!("/job/cancel/{job}"), json!({})).await.status, 202);
            Attempt::new(Method::DELETE, format!("/job/delete/{job}"))
        }
        Action::RemoveSshKey => {
            let body = json!({ "public_key": public_key(name), "name": name });
            let added = world.post(ben, "/user/ssh-key/add", body).await;
            Attempt::new(Method::DELETE, format!("/user/ssh-key/remove/{}", added.text("key_id")))
        }
        Action::DeleteBucket => {
            assert_eq!(world.put(ben, &format!("/object-storage/bucket/create/{name}")).await.status, 201);
            Attempt::new(Method::DELETE, format!("/object-storage/bucket/delete/{name}"))
        }
        Action::RevokeS3Key => {
            let key = world.get(ben, "/object-storage/credentials").await.text("access_key_id");
            Attempt::new(Method::DELETE, format!("/object-storage/keys/revoke/{key}"))
        }
        Action::ManageS3Keys => {
            let org = world.get(ada, "/user/organization/info").await.text("org_id").parse().unwrap();
            world.store.write(move |tx| set_legacy_key(tx, &org, "TARNSHARED")).await.unwrap();
            Attempt::new(Method::POST, "/object-storage/keys/retire-legacy".to_owned())
        }
        Action::DisableObjectStorage => Attempt::new(Method::DELETE, "/object-storage/disable?force=true".to_owned()),
        Action::AdministerEngine => {
            Attempt::new(Method::POST, "/admin/user/create".to_owned()).with(json!({ "email": "dan@example.org" }))
        }
    }
}

fn attachment(volume: &str, cluster: &str) -> Attempt {
    let body = json!({ "storage_id": volume, "cluster_ids": [cluster] });
    Attempt::new(Method::POST, "/storage/attach".to_owned()).with(body)
}

/// Lets the administrator attach the volume, and returns the call that detaches it.
async fn detachment(world: &World, ada: &str, volume: &str, cluster: &str) -> Attempt {
    let attached = attachment(volume, cluster).by(world, ada).await;
    assert_eq!(attached.status, 202, "{attached:?}");
    world.settle().await;
    let body = json!({ "storage_id": volume, "cluster_id": cluster });
    Attempt::new(Method::POST, "/storage/detach".to_owned()).with(body)
}

/// A key that differs by name.
fn public_key(name: &str) -> String {
    let number = name.bytes().fold(0u32, |sum, byte| (sum * 31 + u32::from(byte)) % 10_000);
    format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+{number:04}ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti a@b")
}

/// Everything that the organization has, and everything that happened to it.
async fn facts(world: &World, key: &str) -> Vec<Value> {
    let mut facts = Vec::new();
    for path in [
        "/cluster/list?include_org=true&all=true&limit=1000",
        "/storage/list?include_org=true&all=true&limit=1000",
        "/job/list?include_org=true&all=true&limit=1000",
        "/request/list?include_org=true&limit=1000",
        "/user/ssh-key/list?include_org=true",
        "/object-storage/bucket/list",
        "/object-storage/usage",
        "/user/organization/info",
    ] {
        let seen = world.get(key, path).await;
        // Without object storage there are no buckets to list.
        assert!(matches!(seen.status, 200 | 404), "{seen:?}");
        facts.push(if seen.status == 200 { seen.body } else { Value::Null });
    }
    let events = world.store.read(|tx| tarn_store::events::after(tx, 0, 10_000)).await.unwrap();
    facts.push(json!(events.len()));
    facts
}

fn assert_allowed(answer: &Answer, context: &str) {
    assert!((200..300).contains(&answer.status), "{context}: {answer:?}");
}

/// Another member can take away nothing that its creator and an administrator can.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn member_needs_creator_or_administrator(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some((world, members)) = organization(database, Policy::default()).await else { return };
    let Members { ada, ben, cyd } = &members;
    for (number, action) in Action::ALL.iter().enumerate() {
        for (who, key) in [("member", cyd), ("creator", ben), ("admin", ada)] {
            let context = format!("{action:?} as {who}");
            let attempt = prepare(&world, &members, *action, key, &format!("{who}-{number}")).await;
            let before = facts(&world, ben).await;
            let answer = attempt.by(&world, key).await;
            let allowed = match action {
                Action::Use => true,
                Action::AdministerEngine => false,
                // They belong to all, so they have no creator.
                Action::DisableObjectStorage | Action::ManageS3Keys => who == "admin",
                _ => who != "member",
            };
            if allowed {
                assert_allowed(&answer, &context);
                assert_ne!(facts(&world, ben).await, before, "{context}: the call does something");
                world.settle().await;
                continue;
            }
            assert_eq!(facts(&world, ben).await, before, "{context}: nothing changes");
            if *action == Action::AdministerEngine {
                assert_eq!(answer.refusal(), (403, "access_denied".to_owned()), "{context}");
                continue;
            }
            assert_eq!(answer.refusal(), (403, "not_yours".to_owned()), "{context}");
            assert!(answer.message().contains("ada@example.org"), "{context}: {}", answer.message());
            let names_creator = answer.message().contains("ben@example.org");
            let has_creator = !matches!(action, Action::DisableObjectStorage | Action::ManageS3Keys);
            assert_eq!(names_creator, has_creator, "{context}: {}", answer.message());
            assert!(!answer.message().contains("cyd@example.org"), "{context}: {}", answer.message());
        }
    }
}

/// Where the operator lets members destroy, another member can do all of it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn member_may_destroy_where_operator_allows(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let open = Policy { members_may_destroy: true };
    let Some((world, members)) = organization(database, open).await else { return };
    for (number, action) in Action::ALL.iter().enumerate() {
        let attempt = prepare(&world, &members, *action, &members.cyd, &format!("open-{number}")).await;
        let answer = attempt.by(&world, &members.cyd).await;
        if *action == Action::AdministerEngine {
            assert_eq!(answer.refusal(), (403, "access_denied".to_owned()));
        } else if matches!(action, Action::RevokeS3Key | Action::ManageS3Keys) {
            assert_eq!(answer.refusal(), (403, "not_yours".to_owned()), "keys are nobody else's in any case");
        } else {
            assert_allowed(&answer, &format!("{action:?}"));
        }
        world.settle().await;
    }
}

/// A plain disable is refused like a forced one, and a refusal names only users who can help.
#[tokio::test(flavor = "multi_thread")]
async fn refusal_names_only_users_who_can() {
    let (world, Members { ada, ben, cyd }) =
        organization(DatabaseKind::Sqlite, Policy::default()).await.expect("SQLite is always there");
    let plain = world.delete(&cyd, "/object-storage/disable?force=false").await;
    assert_eq!(plain.refusal(), (403, "not_yours".to_owned()));

    let cluster = world.cluster(&ben, "box").await;
    let refused = world.delete(&cyd, &format!("/cluster/{cluster}")).await;
    let expected = format!(
        "only ben@example.org, who created it, and the organization's administrator (ada@example.org) can destroy \
         cluster '{cluster}'; ask one of them"
    );
    assert_eq!((refused.refusal(), refused.message()), ((403, "not_yours".to_owned()), expected));

    let id = world.get(&ben, "/me").await.text("user_id");
    assert_eq!(world.post(&world.admin, &format!("/admin/user/disable/{id}"), json!({})).await.status, 200);
    let refused = world.delete(&cyd, "/cluster/box").await;
    let expected =
        "only the organization's administrator (ada@example.org) can destroy cluster 'box'; ask them".to_owned();
    assert_eq!((refused.refusal(), refused.message()), ((403, "not_yours".to_owned()), expected));
    assert_eq!(world.delete(&ada, "/cluster/box").await.status, 202);
}
