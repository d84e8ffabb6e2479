//! The certificate of HTTPS: whether it is usable, valid, made out to the right name, the one that the engine serves,
//! and whether its key is private.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use tarn_driver::findings::Finding;
use tarn_model::{Clock as _, Time};

use super::engine;
use crate::doctor::probes::certificate_validity::validity_of;
use crate::doctor::probes::engine_state::EngineState;
use crate::doctor::target::Target;
use crate::environment::SystemClock;
use crate::serve::listeners::tls;

/// A certificate that expires sooner should have been renewed.
const RENEWAL_DUE: Duration = Duration::from_secs(14 * 24 * 3600);

/// Checks the certificate.
pub(in crate::doctor) async fn check_certificate(target: Arc<Target>) -> Vec<Finding> {
    let (Some(cert), Some(key)) = (&target.config.tls_cert, &target.config.tls_key) else {
        return vec![Finding::ok("certificate.usable", "the engine uses HTTP and needs no certificate")];
    };
    let mut findings = vec![check_usable(cert, key)];
    let first = CertificateDer::pem_file_iter(cert).ok().and_then(|mut chain| chain.next()?.ok());
    if let Some(first) = first {
        findings.push(check_validity(&first, SystemClock.now()));
        findings.push(check_names(&first, target.config.public_url.as_deref()));
        findings.extend(check_served(&target, &first).await);
    }
    findings.push(check_key_file(key));
    findings
}

fn check_usable(cert: &Path, key: &Path) -> Finding {
    const CHECK: &str = "certificate.usable";
    match tls::load_tls_config(cert, key) {
        Ok(_) => Finding::ok(CHECK, format!("{} and {} belong together", cert.display(), key.display())),
        Err(failure) => Finding::failure(
            CHECK,
            failure.to_string(),
            "give a PEM chain with the own certificate first as --tls-cert, and its key as --tls-key",
        ),
    }
}

fn check_validity(cert: &[u8], now: Time) -> Finding {
    const CHECK: &str = "certificate.valid";
    let todo = "renew it; the engine reads it again within a minute, or at once after SIGHUP";
    match validity_of(cert) {
        None => Finding::skipped(CHECK, "its validity cannot be parsed", ""),
        Some((from, _)) if now < from => {
            Finding::failure(CHECK, format!("it is not valid before {from}"), "check the clock (see clock.sane)")
        }
        Some((_, until)) if until < now => Finding::failure(CHECK, format!("it expired on {until}"), todo),
        Some((_, until)) if until < now.after(RENEWAL_DUE) => {
            Finding::warning(CHECK, format!("it expires on {until}"), todo)
        }
        Some((_, until)) => Finding::ok(CHECK, format!("it is valid until {until}")),
    }
}

fn check_names(cert: &CertificateDer<'_>, public_url: Option<&str>) -> Finding {
    const CHECK: &str = "certificate.names";
    let Some(host) = public_url.and_then(url_host) else {
        let found = "no --public-url is set, so the names of the certificate cannot be checked";
        return Finding::note(CHECK, found, "set --public-url https://… with a name that is in the certificate");
    };
    let fits = ParsedCertificate::try_from(cert).and_then(|cert| {
        let name = ServerName::try_from(host.as_str())
            .map_err(|_| rustls::Error::General(format!("'{host}' is not a name")))?;
        verify_server_name(&cert, &name)
    });
    match fits {
        Ok(()) => Finding::ok(CHECK, format!("it is for {host}")),
        Err(error) => Finding::failure(
            CHECK,
            format!("it is not valid for {host}, the name that clients are told: {error}"),
            "get a certificate for that name, or set another name with --public-url",
        ),
    }
}

/// Whether the running engine serves the certificate of the file; `None` if no engine runs or responds, which other
/// checks report. The engine reads a renewed certificate within a minute.
async fn check_served(target: &Target, file: &CertificateDer<'_>) -> Option<Finding> {
    const CHECK: &str = "certificate.served";
    if target.engine_state == EngineState::Stopped && target.database_file().is_some() {
        return None;
    }
    // The certificate is only compared, so it need not be trusted.
    let change =
        |builder: reqwest::ClientBuilder| builder.no_proxy().tls_info(true).tls_danger_accept_invalid_certs(true);
    let client = engine::build_client(engine::TIMEOUT, change).ok()?;
    let address = Target::own_address(&target.config);
    let response = client.get(format!("{address}/healthz")).send().await.ok()?;
    let shown = response.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate()?;
    Some(compare_certificates(CHECK, shown, file, &address))
}

fn compare_certificates(check: &'static str, shown: &[u8], file: &[u8], address: &str) -> Finding {
    if shown == file {
        return Finding::ok(check, format!("the engine serves it at {address}"));
    }
    let until = match validity_of(shown) {
        Some((_, until)) => format!(", which is valid until {until}"),
        None => String::new(),
    };
    Finding::failure(
        check,
        format!("the engine serves another certificate at {address}{until}"),
        "wait a minute, in which the engine reads the file again, or send it SIGHUP; if that does not help, its log says why",
    )
}

/// The host of a URL.
fn url_host(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let rest = rest.split(['/', '?', '#']).next()?;
    match rest.strip_prefix('[') {
        Some(six) => six.split_once(']').map(|(six, _)| six.to_owned()),
        None => rest.split(':').next().filter(|host| !host.is_empty()).map(str::to_owned),
    }
}

fn check_key_file(key: &Path) -> Finding {
    const CHECK: &str = "certificate.key_file";
    let shown = key.display();
    match std::fs::metadata(key) {
        Ok(found) if found.mode() & 0o077 != 0 => {
            Finding::warning(CHECK, format!("{shown} is readable by other users"), format!("chmod 600 {shown}"))
        }
        Ok(_) => Finding::ok(CHECK, format!("{shown} is readable by its owner only")),
        Err(error) => {
            Finding::failure(CHECK, format!("cannot read {shown}: {error}"), "give the right file as --tls-key")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that is not the one of the file is a failure, which says how the engine gets to serve the file's.
    #[test]
    fn other_certificate_is_failure() {
        let todo = |shown: &[u8]| compare_certificates("certificate.served", shown, b"new", "https://x").todo;
        assert_eq!(todo(b"new"), None);
        assert!(todo(b"old").is_some_and(|todo| todo.contains("SIGHUP")));
    }

    #[test]
    fn hosts_are_found_in_urls() {
        for (url, expected) in [
            ("https://cloud.example.org/", Some("cloud.example.org")),
            ("https://cloud.example.org:7070", Some("cloud.example.org")),
            ("https://[2001:db8::7]:7070/x", Some("2001:db8::7")),
            ("nonsense", None),
        ] {
            assert_eq!(url_host(url).as_deref(), expected, "{url}");
        }
    }
}
