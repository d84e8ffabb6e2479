//! Logins through the SSH gateway: which key opens which instance.

use rstest::rstest;
use tarn_control::Caller;
use tarn_control::operations::gateway::{self, LoginMatch};
use tarn_control::operations::{admin, clusters, ssh_keys};
use tarn_control::testing::{World, world};
use tarn_model::ids::ClusterId;
use tarn_store::events;
use tarn_store::testing::DatabaseKind;

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti one";
const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMh4Ck57FfxgjFYG3WuFDJAnwW4aNFB1gwoRNhAAhK4A other";

fn fingerprint(key: &str) -> String {
    tarn_model::ssh_keys::parse(key).unwrap().fingerprint
}

async fn cluster_of(world: &World, caller: &Caller, name: &str, nodes: u32, keys: &[&str]) -> ClusterId {
    let new = clusters::NewCluster {
        instance_type: "1xCPU".into(),
        num_nodes: Some(nodes),
        name: Some(name.into()),
        public_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..Default::default()
    };
    let made = clusters::create(&world.control, caller, new).await.unwrap();
    world.settle().await;
    made.cluster
}

async fn instances(world: &World, caller: &Caller, cluster: &ClusterId) -> Vec<String> {
    let view = clusters::info(&world.control, caller, cluster.as_str()).await.unwrap();
    view.instances.iter().map(|node| node.id.to_string()).collect()
}

/// The instance that a key opens under a name.
async fn opens(world: &World, key: &str, name: &str) -> Option<String> {
    match gateway::find(&world.control, name, &fingerprint(key)).await.unwrap()? {
        LoginMatch::One(login) => Some(login.instance.to_string()),
        LoginMatch::Ambiguous(message) => Some(message),
    }
}

/// Every name of an instance, and of its cluster, leads to it.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn login_by_every_name_of_an_instance(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    ssh_keys::add(&world.control, &ada, KEY, None).await.unwrap();
    let cluster = cluster_of(&world, &ada, "wide", 2, &[]).await;
    let nodes = instances(&world, &ada, &cluster).await;
    for (name, node) in [
        (nodes[0].clone(), 0),
        (nodes[1].clone(), 1),
        (cluster.to_string(), 0),
        (format!("{cluster}-0"), 0),
        (format!("{cluster}-1"), 1),
        ("wide".into(), 0),
    ] {
        assert_eq!(opens(&world, KEY, &name).await.as_ref(), Some(&nodes[node]), "{name}");
        assert_eq!(opens(&world, OTHER, &name).await, None, "{name}");
    }
    for nothing in
        ["", "ubuntu", "narrow", "i-000000000000", "c-000000000000", &format!("{cluster}-2"), "wide-1", "WIDE"]
    {
        assert_eq!(opens(&world, KEY, nothing).await, None, "{nothing}");
    }
}

/// A saved key opens the clusters of its owner and organization, and nothing else.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn saved_key_opens_only_clusters_of_its_scope(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    let ben = world.member("ben@example.org", Some("ours")).await;
    let eve = world.member("eve@example.org", Some("others")).await;
    let cluster = cluster_of(&world, &ada, "work", 1, &[]).await;
    ssh_keys::add(&world.control, &eve, OTHER, None).await.unwrap();
    assert_eq!(opens(&world, OTHER, cluster.as_str()).await, None, "another tenant's key");
    let mate = ssh_keys::add(&world.control, &ben, KEY, None).await.unwrap();
    assert!(opens(&world, KEY, "work").await.is_some(), "a key that a member of the organization has saved");
    let found = gateway::find(&world.control, "work", &fingerprint(KEY)).await.unwrap();
    let Some(LoginMatch::One(login)) = found else { panic!("{found:?}") };
    assert_eq!(login.user, ben.user.id, "the user who saved the key logs in");
    let copy = ssh_keys::add(&world.control, &ada, KEY, None).await.unwrap();
    let found = gateway::find(&world.control, "work", &fingerprint(KEY)).await.unwrap();
    let Some(LoginMatch::One(login)) = found else { panic!("{found:?}") };
    assert_eq!(login.user, ada.user.id, "of several who saved it, the creator of the cluster");
    ssh_keys::remove(&world.control, &ada, copy.key.as_str()).await.unwrap();
    ssh_keys::remove(&world.control, &ben, mate.key.as_str()).await.unwrap();
    assert_eq!(opens(&world, KEY, "work").await, None, "a key that was removed");
    ssh_keys::add(&world.control, &ben, KEY, None).await.unwrap();
    admin::disable_user(&world.control, &world.caller, ben.user.id.as_str(), true).await.unwrap();
    assert_eq!(opens(&world, KEY, "work").await, None, "a key of a disabled user");
}

/// A key that was given at creation opens that cluster only.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn given_key_opens_only_its_cluster(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    let eve = world.member("eve@example.org", Some("others")).await;
    let first = cluster_of(&world, &ada, "first", 1, &[]).await;
    let given = cluster_of(&world, &ada, "given", 1, &[OTHER]).await;
    assert!(opens(&world, OTHER, given.as_str()).await.is_some());
    assert_eq!(opens(&world, OTHER, first.as_str()).await, None, "the cluster to which it was not given");
    let strange = cluster_of(&world, &eve, "given", 1, &[]).await;
    assert_eq!(opens(&world, OTHER, strange.as_str()).await, None);
    clusters::destroy(&world.control, &ada, given.as_str()).await.unwrap();
    world.settle().await;
    assert_eq!(opens(&world, OTHER, given.as_str()).await, None, "what is destroyed is gone");
}

/// A name that several clusters have is answered with their ids.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_name_lists_ids(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    let eve = world.member("eve@example.org", Some("others")).await;
    for caller in [&ada, &eve] {
        ssh_keys::add(&world.control, caller, KEY, None).await.unwrap();
    }
    let (mine, theirs) =
        (cluster_of(&world, &ada, "same", 1, &[]).await, cluster_of(&world, &eve, "same", 1, &[]).await);
    for cluster in [&mine, &theirs] {
        log_in_by_id(&world, cluster).await;
    }
    let message = opens(&world, KEY, "same").await.unwrap();
    assert!(message.contains(mine.as_str()) && message.contains(theirs.as_str()), "{message}");
    assert_eq!(opens(&world, KEY, mine.as_str()).await, Some(instances(&world, &ada, &mine).await[0].clone()));
}

/// Logs in to a cluster by its id, with the private half of the key.
async fn log_in_by_id(world: &World, cluster: &ClusterId) {
    let found = gateway::find(&world.control, cluster.as_str(), &fingerprint(KEY)).await.unwrap();
    let Some(LoginMatch::One(login)) = found else { panic!("{found:?}") };
    let from = "192.0.2.7:4711".parse().unwrap();
    gateway::record(&world.control, &login, &fingerprint(KEY), from).await.unwrap();
}

/// A stranger who saves a user's public key neither attracts their logins nor blocks them.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn stolen_public_key_attracts_no_login(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    let eve = world.member("eve@example.org", Some("others")).await;
    let saved = ssh_keys::add(&world.control, &ada, KEY, None).await.unwrap().key;
    let mine = cluster_of(&world, &ada, "mine", 1, &[]).await;
    let node = Some(instances(&world, &ada, &mine).await[0].clone());
    assert_eq!(opens(&world, KEY, "mine").await, node, "nobody else has the key");

    ssh_keys::add(&world.control, &eve, KEY, None).await.unwrap();
    for name in ["mine", "train"] {
        cluster_of(&world, &eve, name, 1, &[]).await;
    }
    for name in ["mine", "train"] {
        let message = opens(&world, KEY, name).await.unwrap();
        assert!(message.contains("log in once by the id"), "{name}: {message}");
    }
    log_in_by_id(&world, &mine).await;
    assert_eq!(opens(&world, KEY, "mine").await, node);
    let message = opens(&world, KEY, "train").await.unwrap();
    assert!(message.contains("log in once by the id"), "the name never leads to the stranger: {message}");
    ssh_keys::remove(&world.control, &ada, saved.as_str()).await.unwrap();
    let message = opens(&world, KEY, "mine").await.unwrap();
    assert!(message.contains("log in once by the id"), "it does not fall through to the stranger: {message}");
}

/// A login is recorded as an event.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn login_is_recorded(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    ssh_keys::add(&world.control, &ada, KEY, None).await.unwrap();
    let cluster = cluster_of(&world, &ada, "work", 1, &[]).await;
    let found = gateway::find(&world.control, "work", &fingerprint(KEY)).await.unwrap();
    let Some(LoginMatch::One(login)) = found else { panic!("{found:?}") };
    let from = "192.0.2.7:4711".parse().unwrap();
    gateway::record(&world.control, &login, &fingerprint(KEY), from).await.unwrap();
    let all = world.store.read(|tx| events::after(tx, 0, 1000)).await.unwrap();
    let event = all.into_iter().find(|event| event.verb == "ssh.login").unwrap();
    assert_eq!(
        (event.actor, event.object),
        (ada.user.id.to_string(), instances(&world, &ada, &cluster).await[0].clone())
    );
    assert_eq!(event.detail, serde_json::json!({ "fingerprint": fingerprint(KEY), "from": "192.0.2.7:4711" }));
}
