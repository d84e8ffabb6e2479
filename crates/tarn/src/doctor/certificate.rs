//! The certificate of HTTPS: that it can be used, for how long, for which names, that it is the one which clients are shown, and that
//! nobody else reads its key.

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

use super::patient::Patient;
use super::running::Running;
use super::{engine, validity};
use crate::environment::SystemClock;
use crate::tls;

/// With less time than this left, somebody should look why it was not renewed.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// Looks at it.
pub(super) async fn look(patient: Arc<Patient>) -> Vec<Finding> {
    let (Some(cert), Some(key)) = (&patient.config.tls_cert, &patient.config.tls_key) else {
        return vec![Finding::ok("certificate.usable", "the engine speaks plain HTTP and needs no certificate")];
    };
    let mut findings = vec![usable(cert, key)];
    let first = CertificateDer::pem_file_iter(cert).ok().and_then(|mut chain| chain.next()?.ok());
    if let Some(first) = first {
        findings.push(valid(&first, SystemClock.now()));
        findings.push(names(&first, patient.config.public_url.as_deref()));
        findings.extend(served(&patient, &first).await);
    }
    findings.push(key_file(key));
    findings
}

fn usable(cert: &Path, key: &Path) -> Finding {
    const CHECK: &str = "certificate.usable";
    match tls::load(cert, key) {
        Ok(_) => Finding::ok(CHECK, format!("{} and {} belong together", cert.display(), key.display())),
        Err(failure) => Finding::failure(
            CHECK,
            failure.to_string(),
            "give a chain in PEM as --tls-cert, its own certificate first, and the key of that one as --tls-key",
        ),
    }
}

fn valid(cert: &[u8], now: Time) -> Finding {
    const CHECK: &str = "certificate.valid";
    let todo = "renew it, and restart the engine: it reads its certificate at its start";
    match validity::of(cert) {
        None => Finding::skipped(CHECK, "how long it is valid is not understood", ""),
        Some((from, _)) if now < from => {
            Finding::failure(CHECK, format!("it is valid from {from} only"), "look at the clock (clock.sane)")
        }
        Some((_, until)) if until < now => Finding::failure(CHECK, format!("it has expired on {until}"), todo),
        Some((_, until)) if until < now.after(SOON) => Finding::warning(CHECK, format!("it expires on {until}"), todo),
        Some((_, until)) => Finding::ok(CHECK, format!("it is valid until {until}")),
    }
}

fn names(cert: &CertificateDer<'_>, public_url: Option<&str>) -> Finding {
    const CHECK: &str = "certificate.names";
    let Some(host) = public_url.and_then(host) else {
        let found = "clients are told no name (--public-url), so its names cannot be compared";
        return Finding::note(CHECK, found, "give --public-url https://… with a name that is in the certificate");
    };
    let fits = ParsedCertificate::try_from(cert).and_then(|cert| {
        let name =
            ServerName::try_from(host.as_str()).map_err(|_| rustls::Error::General(format!("'{host}' is no name")))?;
        verify_server_name(&cert, &name)
    });
    match fits {
        Ok(()) => Finding::ok(CHECK, format!("it is for {host}")),
        Err(error) => Finding::failure(
            CHECK,
            format!("clients are told {host}, for which it is not: {error}"),
            "get a certificate for that name, or tell clients another with --public-url",
        ),
    }
}

/// Whether the engine that runs shows the certificate of the file; nothing where none runs, or it does not answer, which is told
/// elsewhere. It reads the file at its start, so that one which was renewed since is of no use to clients.
async fn served(patient: &Patient, file: &CertificateDer<'_>) -> Option<Finding> {
    const CHECK: &str = "certificate.served";
    if patient.running == Running::Nowhere && patient.database_file().is_some() {
        return None;
    }
    // It is only looked at, and so need not be one that anybody trusts.
    let change =
        |builder: reqwest::ClientBuilder| builder.no_proxy().tls_info(true).tls_danger_accept_invalid_certs(true);
    let client = engine::client(engine::PATIENCE, change).ok()?;
    let address = Patient::own_address(&patient.config);
    let answer = client.get(format!("{address}/healthz")).send().await.ok()?;
    let shown = answer.extensions().get::<reqwest::tls::TlsInfo>()?.peer_certificate()?;
    Some(compare(CHECK, shown, file, &address))
}

fn compare(check: &'static str, shown: &[u8], file: &[u8], address: &str) -> Finding {
    if shown == file {
        return Finding::ok(check, format!("it is what clients are shown at {address}"));
    }
    let until = match validity::of(shown) {
        Some((_, until)) => format!(", which is valid until {until}"),
        None => String::new(),
    };
    Finding::failure(
        check,
        format!("clients are shown another certificate at {address}{until}"),
        "restart the engine: it reads its certificate at its start, and instances and jobs do not notice",
    )
}

/// The host of an address.
fn host(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let rest = rest.split(['/', '?', '#']).next()?;
    match rest.strip_prefix('[') {
        Some(six) => six.split_once(']').map(|(six, _)| six.to_owned()),
        None => rest.split(':').next().filter(|host| !host.is_empty()).map(str::to_owned),
    }
}

fn key_file(key: &Path) -> Finding {
    const CHECK: &str = "certificate.key_file";
    let shown = key.display();
    match std::fs::metadata(key) {
        Ok(found) if found.mode() & 0o077 != 0 => {
            Finding::warning(CHECK, format!("{shown} may be read by others"), format!("chmod 600 {shown}"))
        }
        Ok(_) => Finding::ok(CHECK, format!("only its owner reads {shown}")),
        Err(error) => {
            Finding::failure(CHECK, format!("{shown} cannot be looked at: {error}"), "give the right file as --tls-key")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_addresses() {
        for (url, expected) in [
            ("https://cloud.example.org/", Some("cloud.example.org")),
            ("https://cloud.example.org:7070", Some("cloud.example.org")),
            ("https://[2001:db8::7]:7070/x", Some("2001:db8::7")),
            ("nonsense", None),
        ] {
            assert_eq!(host(url).as_deref(), expected, "{url}");
        }
    }
}
