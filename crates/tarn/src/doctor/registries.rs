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
    let settings = Finding::ok(SETTINGS, format!("something is said about {} registries", registries.len()));
    vec![settings, reachable(&registries).await]
}

async fn reachable(registries: &[Registry]) -> Finding {
    const CHECK: &str = "registries.reachable";
    let here = client(PATIENCE, |builder| builder.no_proxy().tls_certs_only([]));
    let (Ok(here), Ok(elsewhere)) = (here, client(PATIENCE, |builder| builder)) else {
        return Finding::skipped(CHECK, "no client can be made", "");
    };
    let own = registries.iter().map(|registry| (registry.host.as_str(), registry.plain_http, true));
    let mirrors = registries.iter().flat_map(|registry| &registry.mirrors);
    let mirrors = mirrors.map(|host| (host.as_str(), is_loopback(host), false));
    let all: Vec<_> = own.chain(mirrors).collect();
    let (mut lost, mut slow) = (Vec::new(), Vec::new());
    for (host, is_plain, is_own) in all.iter().take(MAX_ASKED) {
        let address = address(host, *is_plain);
        let client = if is_loopback(host) && *is_plain { &here } else { &elsewhere };
        let why = match client.get(&address).send().await {
            Ok(answer) if speaks(answer.status()) => continue,
            Ok(answer) => format!("{host} answers with status {}", answer.status()),
            Err(error) => format!("{host}: {}", reason(&error)),
        };
        if *is_own { lost.push(why) } else { slow.push(why) }
    }
    let todo = "see that the name is right and that this machine reaches it (a proxy is taken from HTTPS_PROXY)";
    match (lost.is_empty(), slow.is_empty()) {
        (false, _) => Finding::failure(CHECK, format!("images cannot be pulled: {}", lost.join("; ")), todo),
        (true, false) => Finding::warning(CHECK, format!("mirrors do not answer: {}", slow.join("; ")), todo),
        (true, true) if all.is_empty() => Finding::ok(CHECK, "no registry is configured: each is asked as it is named"),
        (true, true) => Finding::ok(CHECK, format!("{} registries and mirrors answer", all.len().min(MAX_ASKED))),
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

    #[tokio::test]
    async fn one_that_does_not_answer_is_told() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        drop(listener);
        assert_eq!(reachable(&[]).await.level, Level::Ok);
        let registry = Registry { host: host.clone(), plain_http: true, ..Registry::default() };
        let lost = reachable(&[registry]).await;
        assert!(lost.level == Level::Failure && lost.found.contains(&host), "{lost:?}");
    }
}
