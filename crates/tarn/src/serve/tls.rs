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
