//! The running engine: whether it responds, is this program, and has the right time. No API key is sent to it.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header;
use tarn_driver::findings::Finding;
use tarn_model::{Clock as _, Time};

use crate::doctor::probes::engine_state::EngineState;
use crate::doctor::target::Target;
use crate::environment::SystemClock;

/// The timeout of a call to the engine.
pub(in crate::doctor) const TIMEOUT: Duration = Duration::from_secs(10);

/// The `date` header has whole seconds, and the response takes time as well.
const MAX_SKEW: Duration = Duration::from_secs(5);

/// The maximum length of a message of the engine.
const MAX_MESSAGE: usize = 500;

/// The maximum length of a cause.
const MAX_REASON: usize = 200;

/// Checks the engine.
pub(in crate::doctor) async fn check_engine(target: Arc<Target>) -> Vec<Finding> {
    // Other checks examine the certificate, and the address here may not be in it.
    let client = match build_client(TIMEOUT, |builder| builder.no_proxy().tls_danger_accept_invalid_certs(true)) {
        Ok(client) => client,
        Err(error) => {
            return vec![Finding::failure("engine.answers", format!("cannot create an HTTP client: {error}"), "")];
        }
    };
    let mut findings = check_health(&client, &target).await;
    if let Some(listen) = target.config.metrics_listen
        && !matches!(target.engine_state, EngineState::Stopped)
    {
        findings.push(
            check_metrics(&client, &format!("http://{}/metrics", crate::serve::listeners::reachable_address(listen)))
                .await,
        );
    }
    findings
}

/// Builds an HTTP client that follows no redirects.
pub(in crate::doctor) fn build_client(
    timeout: Duration,
    change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> reqwest::Result<reqwest::Client> {
    // An error means that the same provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().timeout(timeout).redirect(reqwest::redirect::Policy::none());
    change(builder).build()
}

async fn check_health(client: &reqwest::Client, target: &Target) -> Vec<Finding> {
    const CHECK: &str = "engine.answers";
    let address = &target.address;
    // If no engine holds the lock of the data directory, another program would respond.
    if target.engine_state == EngineState::Stopped && !target.is_given && target.database_file().is_some() {
        return vec![silent_engine(target, "")];
    }
    let response = match client.get(format!("{address}/healthz")).send().await {
        Ok(response) => response,
        Err(error) => return vec![silent_engine(target, &innermost_cause(&error))],
    };
    let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok()).and_then(parse_http_date);
    let status = response.status();
    let body: serde_json::Value = response.json().await.unwrap_or_default();
    if let (Some("engine_waiting"), Some(message)) = (body["code"].as_str(), body["message"].as_str()) {
        let found = format!("{address} responds: {}", tarn_base::plain(message, MAX_MESSAGE));
        return vec![Finding::failure(CHECK, found, "make the database available, or free some space on the disk")];
    }
    if !status.is_success() || body["status"] != "ok" {
        let found =
            format!("{address} responds with status {status}: its database does not respond, or it is not an engine");
        return vec![Finding::failure(CHECK, found, "see the engine's log and the area of the database")];
    }
    let mut findings = vec![Finding::ok(CHECK, format!("the engine responds at {address}"))];
    findings.push(check_version(body["version"].as_str(), is_program_replaced(&target.engine_state)));
    findings.extend(date.map(|date| check_clock(date, SystemClock.now())));
    findings
}

fn silent_engine(target: &Target, why: &str) -> Finding {
    const CHECK: &str = "engine.answers";
    let address = &target.address;
    let shown = target.data.display();
    match target.engine_state {
        _ if target.is_given => Finding::failure(
            CHECK,
            format!("no engine responds at {address}: {why}"),
            "check that the address is right and that the engine runs",
        ),
        EngineState::Running { .. } => Finding::failure(
            CHECK,
            format!("an engine runs on {shown}, but does not respond at {address}: {why}"),
            "see its log; give `tarn doctor` the same options as the engine",
        ),
        EngineState::Stopped => Finding::note(CHECK, format!("no engine runs on {shown}"), "start it: tarn serve"),
        EngineState::Unknown => Finding::skipped(
            CHECK,
            format!("no engine responds at {address} ({why}), and this user may not see whether one runs on {shown}"),
            "run `tarn doctor` as the user that runs the engine",
        ),
    }
}

fn check_version(theirs: Option<&str>, is_replaced: bool) -> Finding {
    const CHECK: &str = "engine.version";
    let own = env!("CARGO_PKG_VERSION");
    match theirs {
        Some(theirs) if theirs == own && is_replaced => Finding::note(
            CHECK,
            format!("the program file of the engine was replaced after its start; both have version {own}"),
            "restart the engine to run the new one; instances and jobs continue",
        ),
        Some(theirs) if theirs == own => Finding::ok(CHECK, format!("the engine has version {own}, as this program")),
        Some(theirs) => Finding::warning(
            CHECK,
            format!("the engine has version {theirs}, this program {own}"),
            "restart the engine with this program, or run the doctor of its program",
        ),
        None => Finding::warning(
            CHECK,
            "the engine does not report its version, so it is older than this program",
            "restart the engine with this program",
        ),
    }
}

/// Whether the program file of the running engine was deleted or replaced.
fn is_program_replaced(engine_state: &EngineState) -> bool {
    let EngineState::Running { pid: Some(pid) } = engine_state else { return false };
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    program.to_string_lossy().ends_with(" (deleted)")
}

fn check_clock(theirs: Time, now: Time) -> Finding {
    const CHECK: &str = "engine.clock";
    let skew = theirs.until(now).max(now.until(theirs));
    if skew > MAX_SKEW {
        Finding::warning(
            CHECK,
            format!("the engine's clock differs from the clock of this host by {} s", skew.as_secs()),
            "synchronise both with chrony; S3 signatures are refused after 15 minutes",
        )
    } else {
        Finding::ok(CHECK, "the engine's clock agrees with the clock of this host")
    }
}

async fn check_metrics(client: &reqwest::Client, address: &str) -> Finding {
    const CHECK: &str = "engine.metrics";
    match client.get(address).send().await {
        Ok(response) if response.status().is_success() => Finding::ok(CHECK, format!("metrics are at {address}")),
        Ok(response) => Finding::warning(
            CHECK,
            format!("{address} responds with status {}", response.status()),
            "another program may listen there",
        ),
        Err(error) => Finding::warning(
            CHECK,
            format!("no metrics at {address}: {}", innermost_cause(&error)),
            "see ports.metrics",
        ),
    }
}

/// Parses an HTTP date.
fn parse_http_date(text: &str) -> Option<Time> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Time::from_micros(date.timestamp().as_microsecond()))
}

/// The innermost cause of an error, which is the shortest useful message.
pub(in crate::doctor) fn innermost_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    tarn_base::plain(&cause.to_string(), MAX_REASON).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_driver::findings::Level;

    #[test]
    fn versions_and_clocks_are_compared() {
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(check_version(Some(own), false).level, Level::Ok);
        assert_eq!(check_version(Some(own), true).level, Level::Note);
        assert_eq!(
            (check_version(Some("9.9.9"), false).level, check_version(None, false).level),
            (Level::Warning, Level::Warning)
        );
        let now = parse_http_date("Mon, 16 Nov 2026 07:00:00 GMT").unwrap();
        assert_eq!(now.to_string(), "2026-11-16T07:00:00Z");
        assert_eq!(check_clock(now, now.after(Duration::from_secs(2))).level, Level::Ok);
        assert_eq!(check_clock(now.after(Duration::from_secs(60)), now).level, Level::Warning);
    }
}
