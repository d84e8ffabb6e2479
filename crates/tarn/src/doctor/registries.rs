//! Registries of container images that something is said about: that they answer, and take the logins that there are for them.

use std::sync::Arc;
use std::time::Duration;

use tarn_driver::findings::Finding;
use tarn_driver::local::{ImageSettings, Registry, probe_registry_login};

use super::patient::Patient;

/// How long one may take to answer. Several are asked one after the other, and all of them have the time of an area.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many are asked.
const MAX_ASKED: usize = 6;

const REACHABLE: &str = "registries.reachable";
const HELP: &str =
    "see that the name and the login are right and that this machine reaches it (a proxy is taken from HTTPS_PROXY)";

/// One that is asked.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    host: &'a str,
    /// Whether images are lost without it; there is another way around a mirror.
    is_needed: bool,
}

/// Looks at all of them.
pub(super) async fn look(patient: Arc<Patient>) -> Vec<Finding> {
    const SETTINGS: &str = "registries.settings";
    let known = match patient.config.images() {
        Ok(known) => known,
        Err(failure) => {
            let todo = "mend [images], or write that file again with `docker login`";
            return vec![Finding::failure(SETTINGS, failure.to_string(), todo)];
        }
    };
    let count = match known.registries.len() {
        1 => "1 registry".to_owned(),
        many => format!("{many} registries"),
    };
    let settings = Finding::ok(SETTINGS, format!("something is said about {count}"));
    let reachable = if !known.registries.is_empty() {
        reachable(&known).await
    } else if patient.config.allows_docker() {
        usual(&known).await
    } else {
        Finding::ok(REACHABLE, "no registry is configured: each is asked as it is named")
    };
    vec![settings, reachable]
}

/// Asks the registry that most images come from. A machine without a way there may be meant so.
async fn usual(known: &ImageSettings) -> Finding {
    match probe_registry_login("docker.io", known, PATIENCE / 2).await {
        Ok(()) => {
            Finding::ok(REACHABLE, "no registry is configured: each is asked as it is named, and docker.io answers")
        }
        Err(why) => Finding::warning(
            REACHABLE,
            format!("no registry is configured, and the usual one does not answer: {why}"),
            "give this machine a way there (a proxy is taken from HTTPS_PROXY), or say in images.allowed_registries where images come from",
        ),
    }
}

async fn reachable(known: &ImageSettings) -> Finding {
    let all = all(&known.registries);
    let (mut lost, mut slow) = (Vec::new(), Vec::new());
    for asked in all.iter().take(MAX_ASKED) {
        let Err(why) = probe_registry_login(asked.host, known, PATIENCE).await else { continue };
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

/// All that something is said about, and then their mirrors, each once.
fn all(registries: &[Registry]) -> Vec<Asked<'_>> {
    let own = registries.iter().map(|registry| (registry.host.as_str(), true));
    let mirrors = registries.iter().flat_map(|registry| &registry.mirrors).map(|host| (host.as_str(), false));
    let mut all: Vec<Asked<'_>> = Vec::new();
    for (host, is_needed) in own.chain(mirrors) {
        if !all.iter().any(|asked| asked.host.eq_ignore_ascii_case(host)) {
            all.push(Asked { host, is_needed });
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
        let lost = reachable(&known(vec![registry])).await;
        assert!(lost.level == Level::Failure && lost.found.contains(&host), "{lost:?}");
    }

    #[tokio::test]
    async fn all_are_asked_once_and_who_is_not_asked_is_counted() {
        let named = |host: &str, plain_http, mirrors: &[&str]| {
            let mirrors = mirrors.iter().map(ToString::to_string).collect();
            Registry { host: host.to_owned(), plain_http, mirrors, ..Registry::default() }
        };
        let registries =
            [named("a.example", false, &["Plain.example:5000", "m.example"]), named("plain.example:5000", true, &[])];
        let all = all(&registries);
        let all: Vec<_> = all.iter().map(|asked| (asked.host, asked.is_needed)).collect();
        assert_eq!(all, [("a.example", true), ("plain.example:5000", true), ("m.example", false)]);
        let held = held();
        let port = held.local_addr().unwrap().port();
        let many: Vec<_> = (1..=8).map(|n| named(&format!("127.0.0.{n}:{port}"), true, &[])).collect();
        let found = reachable(&known(many)).await.found;
        assert!(found.ends_with("; 2 more were not asked"), "{found}");
    }
}
