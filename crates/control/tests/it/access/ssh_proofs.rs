//! Proofs of SSH keys by a signature: what they change, and what is refused.

use std::time::Duration;

use rstest::rstest;
use ssh_key::private::Ed25519Keypair;
use ssh_key::{HashAlg, LineEnding, PrivateKey};
use tarn_control::operations::clusters::{self, NewCluster};
use tarn_control::operations::gateway::{self, LoginMatch};
use tarn_control::operations::{admin, ssh_keys, ssh_proofs};
use tarn_control::testing::{World, world};
use tarn_control::{Caller, Error};
use tarn_model::ssh_proofs::NAMESPACE;
use tarn_store::testing::DatabaseKind;
use tarn_store::{events, ssh_keys as stored};

fn private_key(seed: u8) -> PrivateKey {
    Ed25519Keypair::from_seed(&[seed; 32]).into()
}

fn sign(key: &PrivateKey, text: &str) -> String {
    key.sign(NAMESPACE, HashAlg::Sha512, text.as_bytes()).unwrap().to_pem(LineEnding::LF).unwrap()
}

fn fingerprint(key: &PrivateKey) -> String {
    key.public_key().fingerprint(HashAlg::Sha256).to_string()
}

/// Saves the public half of a key for a caller. Returns its id.
async fn save(world: &World, caller: &Caller, key: &PrivateKey) -> String {
    let text = key.public_key().to_openssh().unwrap();
    ssh_keys::add(&world.control, caller, &text, None).await.unwrap().key.to_string()
}

async fn prove(world: &World, caller: &Caller, id: &str, key: &PrivateKey) -> Result<String, Error> {
    let challenge = ssh_proofs::challenge(&world.control, caller, id).await?;
    ssh_proofs::prove(&world.control, caller, id, &challenge.text, &sign(key, &challenge.text)).await
}

/// Whether a name leads to exactly one instance.
async fn opens(world: &World, key: &PrivateKey, name: &str) -> bool {
    let found = gateway::find(&world.control, name, &fingerprint(key)).await.unwrap();
    matches!(found, Some(LoginMatch::One(_)))
}

fn code(refused: Result<impl std::fmt::Debug, Error>) -> &'static str {
    refused.unwrap_err().code
}

/// A signature opens the names of the organization in which it was given, although a stranger has saved the key, and no
/// names of the stranger.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn signature_opens_names(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = world(database).await else { return };
    let ada = world.member("ada@example.org", Some("ours")).await;
    let eve = world.member("eve@example.org", Some("others")).await;
    let key = private_key(1);
    let (mine, copy) = (save(&world, &ada, &key).await, save(&world, &eve, &key).await);
    for (caller, name) in [(&ada, "mine"), (&eve, "theirs")] {
        let new = NewCluster { instance_type: "1xCPU".into(), name: Some(name.into()), ..Default::default() };
        clusters::create(&world.control, caller, new).await.unwrap();
    }
    world.settle().await;
    assert!(!opens(&world, &key, "mine").await && !opens(&world, &key, "theirs").await);
    assert_eq!(code(prove(&world, &eve, &copy, &private_key(2)).await), "ssh_key_not_proven");

    let message = prove(&world, &ada, &mine, &key).await.unwrap();
    assert!(message.contains(&mine), "{message}");
    assert!(opens(&world, &key, "mine").await && !opens(&world, &key, "theirs").await);
    prove(&world, &ada, &mine, &key).await.unwrap();
    let all = world.store.read(|tx| events::after(tx, 0, 1000)).await.unwrap();
    let proven: Vec<_> = all.into_iter().filter(|event| event.verb == "ssh_key.prove").collect();
    assert_eq!(proven.len(), 1, "a proof that is there already is no event: {proven:?}");
    assert_eq!((proven[0].actor.as_str(), proven[0].object.as_str()), (ada.user.id.as_str(), mine.as_str()));
}

/// A challenge is for one key of one user, for a few minutes; a signature of anything else proves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn other_challenges_are_refused() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let control = &world.control;
    let ada = world.member("ada@example.org", Some("ours")).await;
    let ben = world.member("ben@example.org", Some("ours")).await;
    let eve = world.member("eve@example.org", Some("others")).await;
    let (key, other) = (private_key(1), private_key(2));
    let (id, second) = (save(&world, &ada, &key).await, save(&world, &ada, &other).await);
    let copy = save(&world, &eve, &key).await;

    assert_eq!(code(ssh_proofs::challenge(control, &eve, &id).await), "access_denied");
    assert_eq!(code(ssh_proofs::challenge(control, &ada, "k-000000000000").await), "not_found");

    let challenge = ssh_proofs::challenge(control, &ada, &id).await.unwrap().text;
    let of_copy = ssh_proofs::challenge(control, &eve, &copy).await.unwrap().text;
    let of_mate = ssh_proofs::challenge(control, &ben, &id).await.unwrap().text;
    let of_second = ssh_proofs::challenge(control, &ada, &second).await.unwrap().text;
    let relabelled = of_copy.replacen(&copy, &id, 1);
    let longer = challenge.replacen(" 1", " 2", 1);
    for text in [&of_copy, &of_mate, &of_second, &relabelled, &longer, "", "tarn-prove", &format!("{challenge} ")] {
        let refused = ssh_proofs::prove(control, &ada, &id, text, &sign(&key, text)).await;
        assert_eq!(code(refused), "invalid_challenge", "{text}");
    }
    let signed = sign(&key, &challenge);
    let prove = |signature: &str| {
        let (ada, id, challenge, signature) = (ada.clone(), id.clone(), challenge.clone(), signature.to_owned());
        async move { ssh_proofs::prove(control, &ada, &id, &challenge, &signature).await }
    };
    assert_eq!(code(prove("nonsense").await), "invalid_ssh_signature");
    assert_eq!(code(prove(&sign(&key, "another text")).await), "ssh_key_not_proven");
    assert_eq!(code(prove(&sign(&other, &challenge)).await), "ssh_key_not_proven");
    let fingerprint = fingerprint(&key);
    let is_proven = || world.store.read(|tx| stored::is_proven(tx, &fingerprint));
    assert!(!is_proven().await.unwrap(), "nothing of this proved the key");

    world.wait(Duration::from_secs(300)).await;
    assert_eq!(code(prove(&signed).await), "invalid_challenge", "it has expired");
}

/// A proof of a caller whose access has ended, or of a key that was removed, is refused.
#[tokio::test(flavor = "multi_thread")]
async fn proof_needs_access_and_key() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let control = &world.control;
    let ada = world.member("ada@example.org", Some("ours")).await;
    let (key, removed) = (private_key(1), private_key(2));
    let (id, gone) = (save(&world, &ada, &key).await, save(&world, &ada, &removed).await);
    ssh_keys::remove(control, &ada, &gone).await.unwrap();
    assert_eq!(code(prove(&world, &ada, &gone, &removed).await), "not_found");
    let text = ssh_proofs::challenge(control, &ada, &id).await.unwrap().text;
    admin::disable_user(control, &world.caller, ada.user.id.as_str(), true).await.unwrap();
    let refused = ssh_proofs::prove(control, &ada, &id, &text, &sign(&key, &text)).await;
    assert_eq!(code(refused), "user_disabled");
}
