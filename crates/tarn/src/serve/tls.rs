//! HTTPS from a certificate chain and a key in PEM files.

use std::path::Path;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::failure::{Failure, Result};

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
