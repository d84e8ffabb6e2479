//! S3 keys of members: who sees and revokes them, how many there may be, and the legacy key of an organization.

use rstest::rstest;
use serde_json::{Value, json};
use tarn_model::ids::OrgId;
use tarn_store::testing::set_legacy_key;

use crate::support::harness::{Answer, DatabaseKind, World};

/// Two members of an organization with object storage, of whom the first administers it, and the key of each.
struct Members {
    ada: String,
    ben: String,
    keys: [String; 2],
}

async fn members(world: &World) -> Members {
    let (ada, ben) =
        (world.user("ada@example.org", Some("acme")).await, world.user("ben@example.org", Some("acme")).await);
    let first = world.post(&ada, "/object-storage/enable", json!({})).await.text("access_key_id");
    // The member's first key is created when they ask for it.
    let second = world.get(&ben, "/object-storage/credentials").await.text("access_key_id");
    assert_eq!(world.get(&ben, "/object-storage/credentials").await.text("access_key_id"), second);
    Members { ada, ben, keys: [first, second] }
}

async fn works(world: &World, key: &str) -> bool {
    world.control.objects().holder_of(key).await.unwrap().is_some()
}

/// The ids and states in a list.
fn listed(answer: &Answer) -> Vec<(String, String)> {
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows = answer.body["keys"].as_array().unwrap_or_else(|| panic!("{answer:?}")).iter();
    rows.map(|row| (text(row, "access_key_id"), text(row, "status"))).collect()
}

fn active(keys: &[&String]) -> Vec<(String, String)> {
    keys.iter().map(|key| ((*key).clone(), "active".to_owned())).collect()
}

/// A member sees and revokes their own keys only; an administrator those of all members.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn keys_belong_to_members(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let Members { ada, ben, keys: [ada_key, ben_key] } = members(&world).await;
    assert_eq!(listed(&world.get(&ben, "/object-storage/keys").await), active(&[&ben_key]));
    let all = world.get(&ada, "/object-storage/keys").await;
    assert_eq!(listed(&all), active(&[&ben_key, &ada_key]));
    assert!(all.message().contains("ben@example.org") && !all.body.to_string().contains("secret"), "{all:?}");
    let first = world.get(&ada, "/object-storage/keys?limit=1").await;
    let cursor = first.text("next_cursor");
    assert_eq!(listed(&first), active(&[&ben_key]));
    assert_eq!(
        listed(&world.get(&ada, &format!("/object-storage/keys?limit=1&cursor={cursor}")).await),
        active(&[&ada_key])
    );

    let revoke =
        async |caller: &str, key: &str| world.delete(caller, &format!("/object-storage/keys/revoke/{key}")).await;
    assert_eq!(revoke(&ben, &ada_key).await.refusal(), (403, "not_yours".to_owned()));
    for unknown in ["TARNAAAAAAAAAAAAAAAA", "a%00b", "%ff", "..%2f"] {
        assert_eq!(revoke(&ben, unknown).await.refusal(), (404, "not_found".to_owned()), "{unknown}");
    }
    assert!(works(&world, &ada_key).await && works(&world, &ben_key).await);
    let revoked = revoke(&ada, &ben_key).await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
    assert!(works(&world, &ada_key).await && !works(&world, &ben_key).await);
    assert_eq!(revoke(&ada, &ben_key).await.status, 200, "it stays so");
    assert_eq!(listed(&world.get(&ben, "/object-storage/keys").await), []);
    let ended = vec![(ben_key.clone(), "ended".to_owned())];
    assert_eq!(listed(&world.get(&ben, "/object-storage/keys?all=true").await), ended);
    let events = world.get(&world.admin, "/admin/event/list").await.body["events"].as_array().unwrap().clone();
    let of_key: Vec<_> = events.iter().filter(|event| event["object"] == json!(ben_key)).collect();
    assert_eq!(
        of_key.iter().map(|event| &event["verb"]).collect::<Vec<_>>(),
        ["object_storage.create_key", "object_storage.revoke_key"]
    );
}

/// A member has two keys that work, and a rotation replaces only theirs.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn member_has_two_keys(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let Members { ben, keys: [ada_key, ben_key], .. } = members(&world).await;
    let create = async |body: Value| world.post(&ben, "/object-storage/keys/create", body).await;
    assert_eq!(create(json!({ "name": "" })).await.refusal(), (400, "invalid_name".to_owned()));
    let second = create(json!({ "name": "laptop" })).await;
    assert_eq!((second.text("name").as_str(), second.text("secret_access_key").len()), ("laptop", 40));
    assert_eq!(create(json!({})).await.refusal(), (409, "too_many_s3_keys".to_owned()));
    let rotate = async |query: &str| world.post(&ben, &format!("/object-storage/rotate-keys{query}"), json!({})).await;
    assert_eq!(rotate("?keep_old_for=60").await.refusal(), (409, "too_many_s3_keys".to_owned()));
    assert_eq!(rotate("?keep_old_for=604801").await.status, 422);
    assert!(works(&world, &ben_key).await, "a refusal changes nothing");

    let third = rotate("").await.text("access_key_id");
    assert!(!works(&world, &ben_key).await && !works(&world, &second.text("access_key_id")).await);
    let kept = rotate("?keep_old_for=3600").await;
    assert!(kept.message().contains("works until"), "{}", kept.message());
    let fourth = kept.text("access_key_id");
    let states = [(fourth.clone(), "active".to_owned()), (third.clone(), "ending".to_owned())];
    assert_eq!(listed(&world.get(&ben, "/object-storage/keys").await), states);
    assert!(works(&world, &third).await && works(&world, &fourth).await && works(&world, &ada_key).await);
    assert_eq!(world.get(&ben, "/object-storage/credentials").await.text("access_key_id"), fourth);
    world.clock.advance(std::time::Duration::from_secs(3600));
    assert!(!works(&world, &third).await && works(&world, &fourth).await);
}

/// The legacy key of an organization is shown to its administrators, who retire it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn administrators_retire_legacy_key(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let Members { ada, ben, keys: [ada_key, ben_key] } = members(&world).await;
    let retire = async |key: &str| world.post(key, "/object-storage/keys/retire-legacy", json!({})).await;
    assert_eq!(retire(&ada).await.refusal(), (404, "no_legacy_key".to_owned()), "a new organization has none");
    let org: OrgId = world.get(&ada, "/user/organization/info").await.text("org_id").parse().unwrap();
    world.store.write(move |tx| set_legacy_key(tx, &org, "TARNSHARED")).await.unwrap();
    assert!(works(&world, "TARNSHARED").await);
    let all = world.get(&ada, "/object-storage/keys").await;
    assert_eq!(listed(&all), active(&[&"TARNSHARED".to_owned(), &ben_key, &ada_key]));
    assert_eq!((&all.body["keys"][0]["legacy"], &all.body["keys"][1]["legacy"]), (&json!(true), &json!(false)));
    assert_eq!(listed(&world.get(&ben, "/object-storage/keys").await), active(&[&ben_key]));
    let rotated = world.post(&ben, "/object-storage/rotate-keys", json!({})).await;
    assert!(rotated.message().contains("retire-legacy"), "{}", rotated.message());
    let revoked = world.delete(&ada, "/object-storage/keys/revoke/TARNSHARED").await;
    assert_eq!(revoked.refusal(), (409, "legacy_key".to_owned()));
    assert_eq!(retire(&ben).await.refusal(), (403, "not_yours".to_owned()));
    assert!(works(&world, "TARNSHARED").await);
    assert_eq!(retire(&ada).await.status, 200);
    assert!(!works(&world, "TARNSHARED").await && works(&world, &ada_key).await);
}

/// A loop of reads that show secrets does not fill the event log: the same is recorded once a minute.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn repeated_shows_are_recorded_once(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = World::open(database).await else { return };
    let Members { ben, .. } = members(&world).await;
    let shown = async || {
        let events = world.get(&world.admin, "/admin/event/list?limit=1000").await;
        let all = events.body["events"].as_array().unwrap().clone();
        all.iter().filter(|event| event["verb"] == "object_storage.show_credentials").count()
    };
    let show = async || world.get(&ben, "/object-storage/credentials").await;
    world.clock.advance(std::time::Duration::from_secs(61));
    let before = shown().await;
    for _ in 0..5 {
        assert_eq!(show().await.status, 200);
    }
    assert_eq!(shown().await, before + 1);
    world.clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(show().await.status, 200);
    assert_eq!(shown().await, before + 2);
}
