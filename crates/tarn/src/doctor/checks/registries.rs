//! The configured registries of container images: whether they respond and accept their logins.

use std::sync::Arc;
use std::time::Duration;

use tarn_driver::findings::Finding;
use tarn_driver::local::{ImageSettings, Registry, probe_registry_login};

use crate::doctor::target::Target;

/// The timeout of one registry. Several are asked one after the other, within the timeout of the area.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of registries that are asked.
const MAX_ASKED: usize = 6;

const REACHABLE: &str = "registries.reachable";
const HELP: &str = "check the name, the login, and the network of this host (a proxy is taken from HTTPS_PROXY)";

/// A registry or mirror to ask.
#[derive(Debug, PartialEq, Eq)]
struct AskedHost<'a> {
    host: &'a str,
    /// Whether images cannot be pulled without it; a mirror has a fallback.
    is_needed: bool,
}

/// Checks the settings and the registries.
pub(in crate::doctor) async fn check_registries(target: Arc<Target>) -> Vec<Finding> {
    const SETTINGS: &str = "registries.settings";
    let known = match target.config.images() {
        Ok(known) => known,
        Err(failure) => {
            let todo = "correct [images], or write the file again with `docker login`";
            return vec![Finding::failure(SETTINGS, failure.to_string(), todo)];
        }
    };
    let count = match known.registries.len() {
        1 => "1 registry".to_owned(),
        many => format!("{many} registries"),
    };
    let settings = Finding::ok(SETTINGS, format!("{count} configured"));
    let reachable = if !known.registries.is_empty() {
        check_reachable(&known).await
    } else if target.config.allows_docker() {
        check_docker_hub(&known).await
    } else {
        Finding::ok(REACHABLE, "no registry is configured; images are pulled from the registry in their name")
    };
    vec![settings, reachable]
}

/// Asks Docker Hub, where most images come from. A host without access to it may be intended, so this is only a
/// warning.
async fn check_docker_hub(known: &ImageSettings) -> Finding {
    match probe_registry_login("docker.io", known, TIMEOUT / 2).await {
        Ok(()) => Finding::ok(REACHABLE, "no registry is configured, and docker.io responds"),
        Err(why) => Finding::warning(
            REACHABLE,
            format!("no registry is configured, and docker.io does not respond: {why}"),
            "give this host access to it (a proxy is taken from HTTPS_PROXY), or set images.allowed_registries",
        ),
    }
}

async fn check_reachable(known: &ImageSettings) -> Finding {
    let all = hosts_to_ask(&known.registries);
    let (mut lost, mut slow) = (Vec::new(), Vec::new());
    for asked in all.iter().take(MAX_ASKED) {
        let Err(why) = probe_registry_login(asked.host, known, TIMEOUT).await else { continue };
        if asked.is_needed { lost.push(why) } else { slow.push(why) }
    }
    let more = match all.len().saturating_sub(MAX_ASKED) {
        0 => String::new(),
        more => format!("; {more} more were not asked"),
    };
    match (lost.is_empty(), slow.is_empty()) {
        (false, _) => Finding::failure(REACHABLE, format!("images cannot be pulled: {}{more}", lost.join("; ")), HELP),
        (true, false) => {
            Finding::warning(REACHABLE, format!("mirrors do not respond: {}{more}", slow.join("; ")), HELP)
        }
        (true, true) => {
            let summary = match all.len().min(MAX_ASKED) {
                1 => format!("{} responds", all[0].host),
                many => format!("{many} registries and mirrors respond"),
            };
            Finding::ok(REACHABLE, format!("{summary}{more}"))
        }
    }
}

/// The configured registries and then their mirrors, each once.
fn hosts_to_ask(registries: &[Registry]) -> Vec<AskedHost<'_>> {
    let own = registries.iter().map(|registry| (registry.host.as_str(), true));
    let mirrors = registries.iter().flat_map(|registry| &registry.mirrors).map(|host| (host.as_str(), false));
    let mut all: Vec<AskedHost<'_>> = Vec::new();
    for (host, is_needed) in own.chain(mirrors) {
        if !all.iter().any(|asked| asked.host.eq_ignore_ascii_case(host)) {
            all.push(AskedHost { host, is_needed });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_driver::findings::Level;

    fn known(registries: Vec<Registry>) -> ImageSettings {
        ImageSettings { registries, ..ImageSettings::default() }
    }

    /// Reserves a port on which nothing listens.
    fn held() -> tokio::net::TcpSocket {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("0.0.0.0:0".parse().unwrap()).unwrap();
        socket
    }

    #[tokio::test]
    async fn silent_registry_is_reported() {
        let held = held();
        let host = format!("127.0.0.1:{}", held.local_addr().unwrap().port());
        let registry = Registry { host: host.clone(), plain_http: true, ..Registry::default() };
        let lost = check_reachable(&known(vec![registry])).await;
        assert!(lost.level == Level::Failure && lost.found.contains(&host), "{lost:?}");
    }

    #[tokio::test]
    async fn each_host_is_asked_once_up_to_a_limit() {
        let named = |host: &str, plain_http, mirrors: &[&str]| {
            let mirrors = mirrors.iter().map(ToString::to_string).collect();
            Registry { host: host.to_owned(), plain_http, mirrors, ..Registry::default() }
        };
        let registries =
            [named("a.example", false, &["Plain.example:5000", "m.example"]), named("plain.example:5000", true, &[])];
        let all = hosts_to_ask(&registries);
        let all: Vec<_> = all.iter().map(|asked| (asked.host, asked.is_needed)).collect();
        assert_eq!(all, [("a.example", true), ("plain.example:5000", true), ("m.example", false)]);
        let held = held();
        let port = held.local_addr().unwrap().port();
        let many: Vec<_> = (1..=8).map(|n| named(&format!("127.0.0.{n}:{port}"), true, &[])).collect();
        let found = check_reachable(&known(many)).await.found;
        assert!(found.ends_with("; 2 more were not asked"), "{found}");
    }
}
