//! HTTPS from a certificate chain and a key in PEM files, which are read again when they change.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tarn_server::Tls;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Result};

/// How often the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Reads the certificate and the key, and keeps reading them when they change or SIGHUP arrives.
pub(crate) fn start_tls(cert: &Path, key: &Path) -> Result<Tls> {
    let hangup = signal(SignalKind::hangup()).map_err(|e| Failure::with_cause("cannot catch signals", e))?;
    let files = CertificateFiles { cert: cert.to_owned(), key: key.to_owned() };
    let version = files.version();
    let tls = Tls::new(load_tls_config(cert, key)?);
    tokio::spawn(files.keep_current(tls.clone(), version, hangup));
    Ok(tls)
}

/// The files of the certificate and its key.
struct CertificateFiles {
    cert: PathBuf,
    key: PathBuf,
}

/// What changes with the content of the files.
type Version = [Option<(SystemTime, u64)>; 2];

impl CertificateFiles {
    fn version(&self) -> Version {
        let of = |found: Metadata| Some((found.modified().ok()?, found.len()));
        [&self.cert, &self.key].map(|path| std::fs::metadata(path).ok().and_then(of))
    }

    /// Replaces the certificate of new connections whenever the files have changed.
    async fn keep_current(self, tls: Tls, mut seen: Version, mut hangup: Signal) {
        loop {
            let is_asked = tokio::select! {
                _ = hangup.recv() => true,
                () = tokio::time::sleep(CHECK_INTERVAL) => false,
            };
            let version = self.version();
            if is_asked || version != seen {
                // A version that cannot be used is reported once.
                seen = version;
                match load_tls_config(&self.cert, &self.key) {
                    Ok(config) => {
                        tls.replace(config);
                        tracing::info!("the certificate was read again");
                    }
                    Err(failure) => tracing::error!("{failure}; the previous certificate stays in use"),
                }
            }
        }
    }
}

/// Reads the certificate chain and the key.
pub(crate) fn load_tls_config(cert: &Path, key: &Path) -> Result<ServerConfig> {
    let wrong =
        |path: &Path, e: &dyn std::fmt::Display| Failure(format!("{} cannot be used for HTTPS: {e}", path.display()));
    let chain: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(cert).map_err(|e| wrong(cert, &e))?.collect();
    let chain = chain.map_err(|e| wrong(cert, &e))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong(key, &e))?;
    let provider = rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    config.map_err(|e| wrong(cert, &e))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;

    /// Writes a new certificate and its key.
    fn write_certificate(cert: &Path, key: &Path) {
        let kind = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let mut openssl = Command::new("openssl");
        openssl.args(kind).args(["-days", "2", "-subj", "/CN=tarn-test", "-keyout"]).arg(key).arg("-out").arg(cert);
        let output = openssl.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Files that changed are read again without a signal. Unchanged files are not, and unusable ones change nothing.
    #[tokio::test(start_paused = true)]
    async fn changed_files_are_read_again() {
        let directory = TempDir::new().unwrap();
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
        write_certificate(&cert, &key);
        let tls = start_tls(&cert, &key).unwrap();
        let after_check = async || {
            // Time is paused: it jumps to the next check.
            tokio::time::sleep(CHECK_INTERVAL * 2).await;
            tls.current()
        };
        let first = tls.current();
        assert!(Arc::ptr_eq(&first, &after_check().await), "nothing has changed");
        write_certificate(&cert, &key);
        let second = after_check().await;
        assert!(!Arc::ptr_eq(&first, &second), "the new certificate is in use");
        std::fs::write(&cert, "broken").unwrap();
        assert!(Arc::ptr_eq(&second, &after_check().await), "the previous certificate stays in use");
    }
}
