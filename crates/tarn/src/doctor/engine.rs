//! The engine that runs: that it answers, that it is this program, and that its clock is right. No key is sent to it.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header;
use tarn_driver::findings::Finding;
use tarn_model::{Clock as _, Time};

use super::patient::Patient;
use super::running::Running;
use crate::environment::SystemClock;

/// How long it may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The time in answers has whole seconds, and the way there takes time as well.
const SKEW: Duration = Duration::from_secs(5);

/// As much of a reason as is shown.
const MAX_REASON: usize = 200;

/// Looks at it.
pub(super) async fn look(patient: Arc<Patient>) -> Vec<Finding> {
    // Its certificate has checks of its own, and it is asked by an address that may not be its name.
    let client = match client(PATIENCE, |builder| builder.no_proxy().tls_danger_accept_invalid_certs(true)) {
        Ok(client) => client,
        Err(error) => return vec![Finding::failure("engine.answers", format!("no client can be made: {error}"), "")],
    };
    let mut findings = health(&client, &patient).await;
    if let Some(listen) = patient.config.metrics_listen
        && !matches!(patient.running, Running::Nowhere)
    {
        findings.push(metrics(&client, &format!("http://{}/metrics", crate::machines::reachable(listen))).await);
    }
    findings
}

/// A client that goes where it is sent and no further.
pub(super) fn client(
    patience: Duration,
    change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> reqwest::Result<reqwest::Client> {
    // Whoever was first has chosen the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().timeout(patience).redirect(reqwest::redirect::Policy::none());
    change(builder).build()
}

async fn health(client: &reqwest::Client, patient: &Patient) -> Vec<Finding> {
    const CHECK: &str = "engine.answers";
    let address = &patient.address;
    // Where nobody holds the lock of the data, nobody would answer for it.
    if patient.running == Running::Nowhere && !patient.is_given && patient.database_file().is_some() {
        return vec![silent(patient, "")];
    }
    let answer = match client.get(format!("{address}/healthz")).send().await {
        Ok(answer) => answer,
        Err(error) => return vec![silent(patient, &reason(&error))],
    };
    let date = answer.headers().get(header::DATE).and_then(|date| date.to_str().ok()).and_then(time);
    let status = answer.status();
    let body: serde_json::Value = answer.json().await.unwrap_or_default();
    if !status.is_success() || body["status"] != "ok" {
        let found = format!(
            "{address} answers with status {status}, as an engine does whose database does not answer, or none"
        );
        return vec![Finding::failure(CHECK, found, "look at the engine's log, and at the area of the database")];
    }
    let mut findings = vec![Finding::ok(CHECK, format!("the engine answers at {address}"))];
    findings.push(version(body["version"].as_str(), is_replaced(&patient.running)));
    findings.extend(date.map(|date| clock(date, SystemClock.now())));
    findings
}

fn silent(patient: &Patient, why: &str) -> Finding {
    const CHECK: &str = "engine.answers";
    let address = &patient.address;
    let shown = patient.data.display();
    match patient.running {
        _ if patient.is_given => Finding::failure(
            CHECK,
            format!("no engine answers at {address}: {why}"),
            "see that the address is right, and that it runs",
        ),
        Running::Here { .. } => Finding::failure(
            CHECK,
            format!("an engine runs on {shown}, but does not answer at {address}: {why}"),
            "look at its log; give `tarn doctor` the options that it was started with",
        ),
        Running::Nowhere => Finding::note(CHECK, format!("no engine runs on {shown}"), "start one: tarn serve"),
        Running::Unknown => Finding::skipped(
            CHECK,
            format!("no engine answers at {address} ({why}), and whether one runs on {shown} this user may not see"),
            "run `tarn doctor` as the user that runs the engine",
        ),
    }
}

fn version(theirs: Option<&str>, is_replaced: bool) -> Finding {
    const CHECK: &str = "engine.version";
    let own = env!("CARGO_PKG_VERSION");
    match theirs {
        Some(theirs) if theirs == own && is_replaced => Finding::note(
            CHECK,
            format!("the program of the engine was replaced since it was started; it says {own}, too"),
            "restart it to run the new one: instances and jobs do not notice",
        ),
        Some(theirs) if theirs == own => Finding::ok(CHECK, format!("the engine is of version {own}, as this program")),
        Some(theirs) => Finding::warning(
            CHECK,
            format!("the engine is of version {theirs}, this program of {own}"),
            "restart the engine with this program, or ask the program that it runs",
        ),
        None => Finding::warning(
            CHECK,
            "the engine does not tell its version: it is older than this program",
            "restart it with this program",
        ),
    }
}

/// Whether the file of the running program is not there any more.
fn is_replaced(running: &Running) -> bool {
    let Running::Here { pid: Some(pid) } = running else { return false };
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    program.to_string_lossy().ends_with(" (deleted)")
}

fn clock(theirs: Time, now: Time) -> Finding {
    const CHECK: &str = "engine.clock";
    let skew = theirs.until(now).max(now.until(theirs));
    match skew > SKEW {
        true => Finding::warning(
            CHECK,
            format!("the engine's clock differs from this machine's by {} s", skew.as_secs()),
            "keep both right with chrony: signatures of S3 are refused after 15 minutes",
        ),
        false => Finding::ok(CHECK, "the engine's clock agrees with this machine's"),
    }
}

async fn metrics(client: &reqwest::Client, address: &str) -> Finding {
    const CHECK: &str = "engine.metrics";
    match client.get(address).send().await {
        Ok(answer) if answer.status().is_success() => Finding::ok(CHECK, format!("metrics are at {address}")),
        Ok(answer) => Finding::warning(
            CHECK,
            format!("{address} answers with status {}", answer.status()),
            "something else listens there",
        ),
        Err(error) => {
            Finding::warning(CHECK, format!("no metrics at {address}: {}", reason(&error)), "look at ports.metrics")
        }
    }
}

/// A date as HTTP writes it.
fn time(text: &str) -> Option<Time> {
    let date = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Time::from_micros(date.timestamp().as_microsecond()))
}

/// The innermost cause, which says most in the fewest words.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string().chars().take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_driver::findings::Level;

    #[test]
    fn versions_and_clocks_are_compared() {
        let own = env!("CARGO_PKG_VERSION");
        assert_eq!(version(Some(own), false).level, Level::Ok);
        assert_eq!(version(Some(own), true).level, Level::Note);
        assert_eq!((version(Some("9.9.9"), false).level, version(None, false).level), (Level::Warning, Level::Warning));
        let now = time("Mon, 16 Nov 2026 07:00:00 GMT").unwrap();
        assert_eq!(now.to_string(), "2026-11-16T07:00:00Z");
        assert_eq!(clock(now, now.after(Duration::from_secs(2))).level, Level::Ok);
        assert_eq!(clock(now.after(Duration::from_secs(60)), now).level, Level::Warning);
    }
}
