//! Registries that require a token from a separate service, and registries that redirect.

use tarn_driver::local::{ImageSettings, Registry};
use tarn_driver::{Driver, Error};

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, TestImage, digest, image};
use crate::local::test_host::{TestHost, loopback_images, with_test_host_for_images};

/// `anna:hunter2`, as it is sent.
const ANNA: &str = "Basic YW5uYTpodW50ZXIy";

/// Where a token for a repository is requested.
const TOKEN: &str = "/token?scope=repository%3Aorg%2Fx%3Apull&service=a+b";

fn small_image() -> TestImage {
    image(&[LayerBuilder::new().file("a", 0o644, b"a").pack(Compression::Gzip)])
}

/// A registry with a configured login, and a token service.
async fn with_login() -> ((FaultyRegistry, FaultyRegistry), ImageSettings) {
    let (registry, tokens) = (FaultyRegistry::start().await, FaultyRegistry::start().await);
    let (username, password) = (Some("anna".to_owned()), Some("hunter2".to_owned()));
    let login =
        Registry { host: registry.address.clone(), username, password, plain_http: true, ..Registry::default() };
    ((registry, tokens), ImageSettings { registries: vec![login], ..loopback_images() })
}

/// The same without a login.
async fn without_login() -> ((FaultyRegistry, FaultyRegistry), ImageSettings) {
    (with_login().await.0, loopback_images())
}

/// The challenge for a request without a token.
fn challenge(tokens: &FaultyRegistry) -> String {
    format!(r#"Bearer realm="http://{}/token",service="a b",scope="repository:org/x:pull""#, tokens.address)
}

async fn refusal_of(host: &TestHost, reference: &str) -> String {
    match host.driver.ensure_image(reference, "share", &ignore_progress).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{reference}: {other:?}"),
    }
}

/// A token is requested with the login, and again when it has expired.
#[test]
fn token_is_requested_with_login_and_renewed() {
    with_test_host_for_images(with_login, async |host, (registry, tokens)| {
        let reference = registry.add("org/x", &small_image());
        registry.require_authorization("/v2/org/x/manifests/", "Bearer one", &challenge(&tokens));
        registry.require_authorization("/v2/org/x/blobs/", "Bearer two", &challenge(&tokens));
        tokens.respond(TOKEN, br#"{"token":"one","expires_in":60}"#, |_| ());
        tokens.respond_next(TOKEN, br#"{"access_token":"two"}"#, |_| ());
        host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!(*tokens.requests.lock().unwrap(), [format!("{TOKEN} by {ANNA}"), format!("{TOKEN} by {ANNA}")]);
        assert_eq!(registry.count("Basic"), 0, "the password is sent to the token service only");
    });
}

/// A token is requested without a login, too.
#[test]
fn token_is_requested_without_login() {
    with_test_host_for_images(without_login, async |host, (registry, tokens)| {
        let reference = registry.add("org/x", &small_image());
        registry.require_authorization("/v2/", "Bearer one", &challenge(&tokens));
        let refusal = refusal_of(host, &reference).await;
        assert!(refusal.contains("has no public org/x, and this cloud has no login there"), "{refusal}");
        tokens.respond(TOKEN, br#"{"token":"one"}"#, |_| ());
        host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!(tokens.count("Basic"), 0);
    });
}

/// A wrong repository name is not reported as a refused login.
#[test]
fn wrong_name_is_not_refused_login() {
    with_test_host_for_images(with_login, async |host, (registry, tokens)| {
        let reference = registry.add("org/x", &small_image());
        registry.require_authorization("/v2/", "Bearer of another repository", &challenge(&tokens));
        tokens.respond(TOKEN, b"{}", |response| response.status = 401);
        let refusal = refusal_of(host, &reference).await;
        assert!(refusal.contains("rejects the login that this cloud has for it"), "{refusal}");
        tokens.respond(TOKEN, br#"{"token":"one"}"#, |_| ());
        let refusal = refusal_of(host, &reference).await;
        assert!(refusal.contains("has no org/x, or the login of this cloud has no access to it"), "{refusal}");
    });
}

/// The target of a redirect does not get the login.
#[test]
fn redirect_target_gets_no_login() {
    with_test_host_for_images(with_login, async |host, (registry, elsewhere)| {
        let made = small_image();
        let reference = registry.add("org/x", &made);
        let path = format!("/v2/org/x/blobs/{}", digest(&made.blobs[1]));
        let place = format!("location: http://{}/stored", elsewhere.address);
        registry.respond(&path, b"", |response| (response.status, response.head) = (307, vec![place]));
        registry.require_authorization("/v2/", ANNA, "Basic realm=\"x\"");
        elsewhere.respond("/stored", &made.blobs[1], |_| ());
        host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!(*elsewhere.requests.lock().unwrap(), ["/stored"]);
        assert!(registry.requests.lock().unwrap().contains(&format!("{path} by {ANNA}")));
    });
}
