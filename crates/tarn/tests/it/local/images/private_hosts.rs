//! Hosts at private addresses: nobody but the operator may lead the engine there, by a name, a redirect or a token
//! service, and what is there cannot be told from the outside.

use tarn_driver::local::{ImageSettings, Registry};
use tarn_driver::{Driver, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::faulty_registry::FaultyRegistry;
use super::ignore_progress;
use super::image_builder::{Compression, LayerBuilder, TestImage, digest, image};
use crate::local::test_host::{TestHost, with_test_host_for_images};

/// `anna:hunter2`, as it is sent.
const ANNA: &str = "Basic YW5uYTpodW50ZXIy";

fn small_image() -> TestImage {
    image(&[LayerBuilder::new().file("a", 0o644, b"a").pack(Compression::Gzip)])
}

async fn refusal_of(host: &TestHost, reference: &str) -> String {
    match host.driver.ensure_image(reference, "share", &ignore_progress).await {
        Err(Error::Permanent(why)) => why,
        other => panic!("{reference}: {other:?}"),
    }
}

/// The one message for everything that is not the response of a registry.
fn assert_says_nothing(refusal: &str, reference: &str) {
    let address = reference.split('/').next().unwrap();
    let expected = format!(
        "{reference} cannot be pulled: this cloud does not reach a registry at {address}; check the name, try again \
         later, or ask the operator, who finds the reason in the log"
    );
    assert_eq!(refusal, expected);
}

/// A registry that the operator lists, and one that they do not list.
async fn listed_and_other() -> ((FaultyRegistry, FaultyRegistry), ImageSettings) {
    let (listed, other) = (FaultyRegistry::start().await, FaultyRegistry::start().await);
    let private_registries = vec![listed.address.clone()];
    ((listed, other), ImageSettings { private_registries, ..ImageSettings::default() })
}

/// A registry at a loopback address is called only if the operator lists it, whatever its name.
#[test]
fn unlisted_registry_on_loopback_is_not_called() {
    with_test_host_for_images(listed_and_other, async |host, (listed, other)| {
        host.driver
            .ensure_image(&listed.add("org/x", &small_image()), "share", &ignore_progress)
            .await
            .expect("a listed registry is called");
        let reference = other.add("org/y", &small_image());
        let by_name = reference.replace("127.0.0.1", "localhost");
        let (by_number, by_name_refusal) = tokio::join!(refusal_of(host, &reference), refusal_of(host, &by_name));
        assert_says_nothing(&by_number, &reference);
        assert_says_nothing(&by_name_refusal, &by_name);
        assert_eq!(*other.requests.lock().unwrap(), Vec::<String>::new());
    });
}

/// A redirect to a private address is not followed.
#[test]
fn redirect_to_private_address_is_not_followed() {
    with_test_host_for_images(listed_and_other, async |host, (listed, other)| {
        let reference = listed.add("org/x", &small_image());
        for target in [other.address.clone(), other.address.replace("127.0.0.1", "localhost")] {
            let place = format!("location: http://{target}/secret");
            listed.respond("/v2/org/x/manifests/1", b"", |response| {
                (response.status, response.head) = (307, vec![place]);
            });
            assert_says_nothing(&refusal_of(host, &reference).await, &reference);
        }
        assert_eq!(*other.requests.lock().unwrap(), Vec::<String>::new());
    });
}

/// Redirects are followed a few times only.
#[test]
fn endless_redirects_are_refused() {
    with_test_host_for_images(listed_and_other, async |host, (listed, _)| {
        let (reference, path) = (listed.add("org/x", &small_image()), "/v2/org/x/manifests/1");
        let place = format!("location: {path}");
        listed.respond(path, b"", |response| (response.status, response.head) = (307, vec![place]));
        assert_says_nothing(&refusal_of(host, &reference).await, &reference);
        assert_eq!(listed.count(path), 6);
    });
}

/// A token service at a private address is not called, and no token reaches the registry.
#[test]
fn token_service_at_private_address_is_not_called() {
    with_test_host_for_images(listed_and_other, async |host, (listed, other)| {
        let reference = listed.add("org/x", &small_image());
        let challenge = format!(r#"Bearer realm="http://{}/token",service="x""#, other.address);
        listed.require_authorization("/v2/", "Bearer secret", &challenge);
        other.respond("/token?scope=repository%3Aorg%2Fx%3Apull&service=x", br#"{"token":"secret"}"#, |_| ());
        assert_says_nothing(&refusal_of(host, &reference).await, &reference);
        assert_eq!(*other.requests.lock().unwrap(), Vec::<String>::new());
        assert_eq!(listed.count("Bearer"), 0);
    });
}

/// A registry with a login, and a token service on another site. Both are listed.
async fn with_login() -> ((FaultyRegistry, FaultyRegistry), ImageSettings) {
    let (registry, tokens) = (FaultyRegistry::start().await, FaultyRegistry::start_at("127.0.0.2").await);
    let (username, password) = (Some("anna".to_owned()), Some("hunter2".to_owned()));
    let host = registry.address.clone();
    let login = Registry { host, username, password, plain_http: true, ..Registry::default() };
    let private_registries = vec![tokens.address.clone()];
    ((registry, tokens), ImageSettings { registries: vec![login], private_registries, ..ImageSettings::default() })
}

/// The same, and the operator names the token service of the registry.
async fn with_login_and_token_service() -> ((FaultyRegistry, FaultyRegistry), ImageSettings) {
    let (both, mut settings) = with_login().await;
    settings.registries[0].token_service = settings.private_registries.pop();
    (both, settings)
}

/// Pulls from a registry whose token service is on another site; returns the calls of that.
async fn calls_of_token_service(host: &TestHost, registry: &FaultyRegistry, tokens: &FaultyRegistry) -> Vec<String> {
    let reference = registry.add("org/x", &small_image());
    let challenge = format!(r#"Bearer realm="http://{}/token""#, tokens.address);
    registry.require_authorization("/v2/", "Bearer one", &challenge);
    tokens.respond("/token?scope=repository%3Aorg%2Fx%3Apull", br#"{"token":"one"}"#, |_| ());
    host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
    tokens.requests.lock().unwrap().clone()
}

/// A token service on another site gets no login, unless the operator names it for the registry.
#[test]
fn login_stays_on_site_of_registry() {
    let path = "/token?scope=repository%3Aorg%2Fx%3Apull";
    with_test_host_for_images(with_login, async |host, (registry, tokens)| {
        assert_eq!(calls_of_token_service(host, &registry, &tokens).await, [path]);
    });
    with_test_host_for_images(with_login_and_token_service, async |host, (registry, tokens)| {
        assert_eq!(calls_of_token_service(host, &registry, &tokens).await, [format!("{path} by {ANNA}")]);
    });
}

/// A token of a registry is not sent to where the registry redirects.
#[test]
fn redirect_target_gets_no_token() {
    with_test_host_for_images(with_login, async |host, (registry, elsewhere)| {
        let made = small_image();
        let reference = registry.add("org/x", &made);
        let path = format!("/v2/org/x/blobs/{}", digest(&made.blobs[1]));
        let place = format!("location: http://{}/stored", elsewhere.address);
        registry.respond(&path, b"", |response| (response.status, response.head) = (307, vec![place]));
        registry.require_authorization(
            "/v2/",
            "Bearer one",
            &format!(r#"Bearer realm="http://{}/token""#, registry.address),
        );
        registry.respond("/token?scope=repository%3Aorg%2Fx%3Apull", br#"{"token":"one"}"#, |_| ());
        elsewhere.respond("/stored", &made.blobs[1], |_| ());
        host.driver.ensure_image(&reference, "share", &ignore_progress).await.unwrap();
        assert_eq!(*elsewhere.requests.lock().unwrap(), ["/stored"]);
        assert!(registry.requests.lock().unwrap().contains(&format!("{path} by Bearer one")));
    });
}

/// A listed registry, a listed port on which nothing listens, and a listed service that does not speak HTTP.
async fn listed_without_registry() -> ((FaultyRegistry, tokio::net::TcpSocket, TcpListener), ImageSettings) {
    let registry = FaultyRegistry::start().await;
    // The port is bound without a listener, so that no other test can get it meanwhile.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [closed.local_addr().unwrap(), other.local_addr().unwrap()].map(|address| address.to_string());
    let private_registries = [registry.address.clone()].into_iter().chain(addresses).collect();
    ((registry, closed, other), ImageSettings { private_registries, ..ImageSettings::default() })
}

/// A closed port, another protocol and servers that are no registry get the same message; a registry gets its own.
#[test]
fn only_response_of_registry_is_explained() {
    with_test_host_for_images(listed_without_registry, async |host, (registry, closed, other)| {
        let other_address = other.local_addr().unwrap();
        let banner = tokio::spawn(async move {
            while let Ok((mut stream, _)) = other.accept().await {
                let _gone = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
                let _gone = stream.read(&mut [0; 1024]).await;
            }
        });
        for status in [200, 301, 401, 403, 404, 418, 429, 503] {
            registry.respond(&format!("/v2/x{status}/manifests/1"), b"<html></html>", |response| {
                (response.status, response.is_anonymous) = (status, true);
            });
        }
        let at_registry =
            [200, 301, 401, 403, 404, 418, 429, 503].map(|status| format!("{}/x{status}:1", registry.address));
        let elsewhere = [format!("{}/x:1", closed.local_addr().unwrap()), format!("{other_address}/x:1")];
        let all: Vec<_> = at_registry.into_iter().chain(elsewhere).collect();
        let refusals = futures::future::join_all(all.iter().map(|reference| refusal_of(host, reference))).await;
        for (reference, refusal) in all.iter().zip(&refusals) {
            assert_says_nothing(refusal, reference);
        }
        banner.abort();
        let not_found = refusal_of(host, &format!("{}/nowhere:1", registry.address)).await;
        assert!(not_found.contains("has no such repository, tag or digest"), "{not_found}");
        let error = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
        registry.respond("/v2/y/manifests/1", error, |response| {
            (response.status, response.is_anonymous) = (404, true);
        });
        let not_found = refusal_of(host, &format!("{}/y:1", registry.address)).await;
        assert!(not_found.contains("has no such repository, tag or digest"), "its body says what it is: {not_found}");
    });
}
