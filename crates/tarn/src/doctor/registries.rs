//! Registries of container images that something is said about: that they answer. No login is sent.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use tarn_driver::findings::Finding;
use tarn_driver::local::{Registry, is_loopback};

use super::engine::{client, reason};
use super::patient::Patient;

/// How long one may take to answer. Several are asked one after the other, and all of them have the time of an area.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many are asked.
const MAX_ASKED: usize = 6;

const REACHABLE: &str = "registries.reachable";
const HELP: &str = "see that the name is right and that this machine reaches it (a proxy is taken from HTTPS_PROXY)";

/// One that is asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    host: &'a str,
    is_plain: bool,
    /// Whether images are lost without it; there is another way around a mirror.
    is_needed: bool,
}

/// Looks at all of them.
pub(super) async fn look(patient: Arc<Patient>) -> Vec<Finding> {
    const SETTINGS: &str = "registries.settings";
    let registries = match patient.config.images() {
        Ok(settings) => settings.registries,
        Err(failure) => {
            let todo = "mend [images], or write that file again with `docker login`";
            return vec![Finding::failure(SETTINGS, failure.to_string(), todo)];
        }
    };
    let count = match registries.len() {
        1 => "1 registry".to_owned(),
        many => format!("{many} registries"),
    };
    let settings = Finding::ok(SETTINGS, format!("something is said about {count}"));
    let reachable = if !registries.is_empty() {
        reachable(&registries).await
    } else if patient.config.allows_docker() {
        usual().await
    } else {
        Finding::ok(REACHABLE, "no registry is configured: each is asked as it is named")
    };
    vec![settings, reachable]
}

/// Asks the registry that most images come from. A machine without a way there may be meant so.
async fn usual() -> Finding {
    let Ok(client) = client(PATIENCE / 2, |builder| builder) else {
        return Finding::skipped(REACHABLE, "no client can be made", "");
    };
    match ask(&client, &Asked { host: "docker.io", is_plain: false, is_needed: false }).await {
        None => {
            Finding::ok(REACHABLE, "no registry is configured: each is asked as it is named, and docker.io answers")
        }
        Some(why) => Finding::warning(
            REACHABLE,
            format!("no registry is configured, and the usual one does not answer: {why}"),
            "give this machine a way there (a proxy is taken from HTTPS_PROXY), or say in images.allowed_registries where images come from",
        ),
    }
}

async fn reachable(registries: &[Registry]) -> Finding {
    let here = client(PATIENCE, |builder| builder.no_proxy().tls_certs_only([]));
    let (Ok(here), Ok(elsewhere)) = (here, client(PATIENCE, |builder| builder)) else {
        return Finding::skipped(REACHABLE, "no client can be made", "");
    };
    let all = all(registries);
    let (mut lost, mut slow) = (Vec::new(), Vec::new());
    for asked in all.iter().take(MAX_ASKED) {
        let client = if is_loopback(asked.host) && asked.is_plain { &here } else { &elsewhere };
        let Some(why) = ask(client, asked).await else { continue };
        if asked.is_needed { lost.push(why) } else { slow.push(why) }
    }
    let more = match all.len().saturating_sub(MAX_ASKED) {
        0 => String::new(),
        more => format!("; {more} more were not asked"),
    };
    match (lost.is_empty(), slow.is_empty()) {
        (false, _) => Finding::failure(REACHABLE, format!("images cannot be pulled: {}{more}", lost.join("; ")), HELP),
        (true, false) => Finding::warning(REACHABLE, format!("mirrors do not answer: {}{more}", slow.join("; ")), HELP),
        (true, true) => {
            let told = match all.len().min(MAX_ASKED) {
                1 => format!("{} answers", all[0].host),
                many => format!("{many} registries and mirrors answer"),
            };
            Finding::ok(REACHABLE, format!("{told}{more}"))
        }
    }
}

/// All that something is said about, and then their mirrors, each once. How a mirror is spoken to may be said in an entry of its own.
fn all(registries: &[Registry]) -> Vec<Asked<'_>> {
    let own = registries.iter().map(|registry| (registry.host.as_str(), true));
    let mirrors = registries.iter().flat_map(|registry| &registry.mirrors).map(|host| (host.as_str(), false));
    let mut all: Vec<Asked<'_>> = Vec::new();
    for (host, is_needed) in own.chain(mirrors) {
        let said = registries.iter().find(|registry| registry.host.eq_ignore_ascii_case(host));
        let is_plain = said.map_or_else(|| is_loopback(host), |registry| registry.plain_http);
        if !all.iter().any(|asked| asked.host.eq_ignore_ascii_case(host)) {
            all.push(Asked { host, is_plain, is_needed });
        }
    }
    all
}

/// Asks one; answers what is wrong with it.
async fn ask(client: &reqwest::Client, asked: &Asked<'_>) -> Option<String> {
    let host = asked.host;
    match client.get(address(host, asked.is_plain)).send().await {
        Ok(answer) if speaks(answer.status()) => None,
        Ok(answer) => Some(format!("{host} answers with status {}", answer.status())),
        Err(error) => Some(format!("{host}: {}", reason(&error))),
    }
}

/// Where a registry answers. The one that names without a registry mean has another name there.
fn address(host: &str, is_plain: bool) -> String {
    let host = if host == "docker.io" { "registry-1.docker.io" } else { host };
    format!("{}://{host}/v2/", if is_plain { "http" } else { "https" })
}

/// Whether a registry says that: to come in, or to log in first.
fn speaks(status: StatusCode) -> bool {
    status.is_success() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_driver::findings::Level;

    #[test]
    fn addresses_are_those_that_registries_have() {
        assert_eq!(address("docker.io", false), "https://registry-1.docker.io/v2/");
        assert_eq!(address("127.0.0.1:5000", true), "http://127.0.0.1:5000/v2/");
        assert!(speaks(StatusCode::OK) && speaks(StatusCode::UNAUTHORIZED) && !speaks(StatusCode::NOT_FOUND));
    }

    /// Holds a port at which nobody listens, so that nobody else gets it meanwhile.
    fn held() -> tokio::net::TcpSocket {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("0.0.0.0:0".parse().unwrap()).unwrap();
        socket
    }

    #[tokio::test]
    async fn one_that_does_not_answer_is_told() {
        let held = held();
        let host = format!("127.0.0.1:{}", held.local_addr().unwrap().port());
        let registry = Registry { host: host.clone(), plain_http: true, ..Registry::default() };
        let lost = reachable(&[registry]).await;
        assert!(lost.level == Level::Failure && lost.found.contains(&host), "{lost:?}");
    }
    #[tokio::test]
    async fn mirrors_are_asked_as_is_said_of_them_and_who_is_not_asked_is_counted() {
        let named = |host: &str, plain_http, mirrors: &[&str]| {
            let mirrors = mirrors.iter().map(ToString::to_string).collect();
            Registry { host: host.to_owned(), plain_http, mirrors, ..Registry::default() }
        };
        let registries =
            [named("a.example", false, &["Plain.example:5000", "m.example"]), named("plain.example:5000", true, &[])];
        let all = all(&registries);
        let plain: Vec<_> = all.iter().map(|asked| (asked.host, asked.is_plain, asked.is_needed)).collect();
        assert_eq!(
            plain,
            [("a.example", false, true), ("plain.example:5000", true, true), ("m.example", false, false)]
        );
        let held = held();
        let port = held.local_addr().unwrap().port();
        let many: Vec<_> = (1..=8).map(|n| named(&format!("127.0.0.{n}:{port}"), true, &[])).collect();
        let found = reachable(&many).await.found;
        assert!(found.ends_with("; 2 more were not asked"), "{found}");
    }
}
