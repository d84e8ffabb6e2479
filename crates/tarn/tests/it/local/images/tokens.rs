//! Registries that want a token, which somebody else gives out, and those that send on to somebody else.

use tarn_driver::local::{ImageSettings, Registry};
use tarn_driver::{Driver, Error};

use super::false_registry::FalseRegistry;
use super::maker::{Made, Packing, Writing, digest, image};
use super::quiet;
use crate::local::machine::{Machine, on_a_machine_with};

/// `anna:hunter2`, as it is sent.
const ANNA: &str = "Basic YW5uYTpodW50ZXIy";

/// Where a token for a repository is asked for.
const TOKEN: &str = "/token?scope=repository%3Aorg%2Fx%3Apull&service=a+b";

fn made() -> Made {
    image(&[Writing::new().file("a", 0o644, b"a").pack(Packing::Gzip)])
}

/// A registry, which a login is configured for, and somebody who gives out tokens.
async fn with_login() -> ((FalseRegistry, FalseRegistry), ImageSettings) {
    let (registry, tokens) = (FalseRegistry::start().await, FalseRegistry::start().await);
    let (username, password) = (Some("anna".to_owned()), Some("hunter2".to_owned()));
    let login =
        Registry { host: registry.address.clone(), username, password, plain_http: true, ..Registry::default() };
    ((registry, tokens), ImageSettings { registries: vec![login], ..ImageSettings::default() })
}

/// The same without a login.
async fn without_login() -> ((FalseRegistry, FalseRegistry), ImageSettings) {
    (with_login().await.0, ImageSettings::default())
}

/// What a registry says to whoever shows no token.
fn challenge(tokens: &FalseRegistry) -> String {
    format!(r#"Bearer realm="http://{}/token",service="a b",scope="repository:org/x:pull""#, tokens.address)
}

async fn why(machine: &Machine, reference: &str) -> String {
    match machine.driver.ensure_image(reference, &quiet).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{reference}: {other:?}"),
    }
}

#[test]
fn a_token_is_asked_for_with_the_login_and_again_when_it_has_passed() {
    on_a_machine_with(with_login, async |machine, (registry, tokens)| {
        let reference = registry.add("org/x", &made());
        registry.want("/v2/org/x/manifests/", "Bearer one", &challenge(&tokens));
        registry.want("/v2/org/x/blobs/", "Bearer two", &challenge(&tokens));
        tokens.answer(TOKEN, br#"{"token":"one","expires_in":60}"#, |_| ());
        tokens.then(TOKEN, br#"{"access_token":"two"}"#, |_| ());
        machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        assert_eq!(*tokens.asked.lock().unwrap(), [format!("{TOKEN} by {ANNA}"), format!("{TOKEN} by {ANNA}")]);
        assert_eq!(registry.count("Basic"), 0, "the password goes to whoever gives out tokens only");
    });
}

#[test]
fn a_token_is_asked_for_without_a_login_too() {
    on_a_machine_with(without_login, async |machine, (registry, tokens)| {
        let reference = registry.add("org/x", &made());
        registry.want("/v2/", "Bearer one", &challenge(&tokens));
        let said = why(machine, &reference).await;
        assert!(said.contains("has no public org/x, and this cloud has no login there"), "{said}");
        tokens.answer(TOKEN, br#"{"token":"one"}"#, |_| ());
        machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        assert_eq!(tokens.count("Basic"), 0);
    });
}

#[test]
fn a_wrong_name_is_not_a_refused_login() {
    on_a_machine_with(with_login, async |machine, (registry, tokens)| {
        let reference = registry.add("org/x", &made());
        registry.want("/v2/", "Bearer of somebody else", &challenge(&tokens));
        tokens.answer(TOKEN, b"{}", |answer| answer.status = 401);
        let said = why(machine, &reference).await;
        assert!(said.contains("rejects the login that this cloud has for it"), "{said}");
        tokens.answer(TOKEN, br#"{"token":"one"}"#, |_| ());
        let said = why(machine, &reference).await;
        assert!(said.contains("has no org/x, or the login of this cloud has no access to it"), "{said}");
    });
}

#[test]
fn whoever_a_registry_sends_on_to_is_not_shown_the_login() {
    on_a_machine_with(with_login, async |machine, (registry, elsewhere)| {
        let made = made();
        let reference = registry.add("org/x", &made);
        let path = format!("/v2/org/x/blobs/{}", digest(&made.blobs[1]));
        let place = format!("location: http://{}/stored", elsewhere.address);
        registry.answer(&path, b"", |answer| (answer.status, answer.head) = (307, vec![place]));
        registry.want("/v2/", ANNA, "Basic realm=\"x\"");
        elsewhere.answer("/stored", &made.blobs[1], |_| ());
        machine.driver.ensure_image(&reference, &quiet).await.unwrap();
        assert_eq!(*elsewhere.asked.lock().unwrap(), ["/stored"]);
        assert!(registry.asked.lock().unwrap().contains(&format!("{path} by {ANNA}")));
    });
}
