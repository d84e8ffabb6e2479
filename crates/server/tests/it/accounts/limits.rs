//! Limits through HTTP.

use rstest::rstest;
use serde_json::json;

use crate::support::harness::{DatabaseKind, World};

/// Limits are set, shown, enforced and cleared.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_set_enforced_and_cleared(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let (admin, ada) = (world.admin.clone(), world.user("ada@example.org", Some("acme")).await);
    let org = world.get(&ada, "/me").await.text("org_id");
    let path = format!("/admin/limits/{org}");
    let patch = async |body: serde_json::Value| world.patch(&admin, &path, body).await;
    let set = patch(json!({ "gpus": 1, "cpus": 100.5, "volume_gb": 5 })).await;
    assert_eq!(set.status, 200, "{:?}", set.body);
    assert_eq!(
        set.body["own"],
        json!({ "instances": null, "cpus": 100.5, "gpus": 1, "volume_gb": 5, "object_gb": null, "waiting": null, "job_gb": null })
    );
    world.cluster(&ada, "first").await;
    let refused = world.post(&ada, "/cluster/create", json!({ "instance_type": "2xH100" })).await;
    assert_eq!(refused.refusal(), (409, "limit_reached".to_owned()));
    assert!(refused.text("message").contains("the organization may have 1 GPU, has 0 and this asks for 2"));
    let refused = world.post(&ada, "/storage/create", json!({ "size": 6 })).await;
    assert_eq!(refused.refusal(), (409, "limit_reached".to_owned()));
    let me = world.get(&ada, "/me").await.body;
    assert_eq!((&me["limits"]["volume_gb"], &me["used"]["instances"]), (&json!(5), &json!(1)));
    let one = world.get(&admin, &path).await;
    assert!(one.text("message").contains("an administrator"), "{}", one.text("message"));
    let listed = world.get(&admin, "/admin/limits?limit=1").await;
    assert_eq!((&listed.body["limits"][0]["scope"], &listed.body["next_after"]), (&json!(org), &json!(org)));
    assert_eq!(world.get(&admin, &format!("/admin/limits?after={org}")).await.body["limits"], json!([]));
    let partly = patch(json!({ "gpus": null })).await;
    assert_eq!((&partly.body["own"]["gpus"], &partly.body["own"]["volume_gb"]), (&json!(null), &json!(5)));
    let waiting = patch(json!({ "waiting": 3 })).await;
    assert_eq!((&waiting.body["limits"]["waiting"], &waiting.body["used"]["waiting"]), (&json!(3), &json!(0)));
    assert!(waiting.text("message").contains("clusters that wait"), "{}", waiting.text("message"));
    for wrong in [json!({ "gpus": -1 }), json!({ "waiting": -1 }), json!({ "gpus": "many" }), json!({ "cpus": 1e30 })] {
        assert_eq!(patch(wrong).await.status, 422);
    }
    let nonsense = world.get(&admin, "/admin/limits/nonsense").await;
    assert_eq!(nonsense.refusal(), (400, "invalid_id".to_owned()));
    assert!(nonsense.message().starts_with("`nonsense` is neither the id of an organization"), "{nonsense:?}");
    assert_eq!(world.get(&admin, "/admin/limits/o-000000000001").await.status, 404);
    let cleared = world.delete(&admin, &path).await;
    assert_eq!((cleared.status, &cleared.body["limits"]["volume_gb"]), (200, &json!(null)));
    assert_eq!(world.post(&ada, "/storage/create", json!({ "size": 6 })).await.status, 202);
}
