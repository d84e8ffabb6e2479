//! Registries: how they are called over HTTP, how this engine logs in, and how their manifests are parsed.
//!
//! Start reading at `sources`, which tries the mirrors and then the registry itself; `connection` is one registry.

mod challenge;
pub(super) mod connection;
mod http_clients;
pub(super) mod manifest;
pub(super) mod sources;

use std::time::Duration;

use crate::local::images::settings::ImageSettings;
use connection::{RegistryClient, RegistryError};

/// Calls a registry with its login, if there is one; returns what is wrong as a text.
pub async fn probe_registry_login(host: &str, settings: &ImageSettings, limit: Duration) -> Result<(), String> {
    let registry = RegistryClient::new(host, settings).await?;
    let response = tokio::time::timeout(limit, registry.check_login()).await;
    match response.unwrap_or_else(|_| Err(RegistryError::Unreachable("it does not respond".into()))) {
        // An accepted login may have access to single repositories only.
        Ok(()) | Err(RegistryError::AccessDenied) => Ok(()),
        Err(error @ (RegistryError::Unauthorized | RegistryError::LoginRejected)) => match (registry.login(), error) {
            // Asking for a login is the response of a registry, which may still offer public images.
            (None, _) => Ok(()),
            (Some(login), RegistryError::LoginRejected) => Err(format!("{host} rejects the login of {login}")),
            (Some(login), _) => Err(format!("{host} denies access, and does not ask for the login of {login}")),
        },
        Err(RegistryError::Unreachable(why)) => Err(format!("{host}: {why}")),
        Err(RegistryError::NotFound) => Err(format!("{host} does not respond like a registry: status 404")),
        Err(RegistryError::Unexpected(why)) => Err(format!("{host} does not respond like a registry: {why}")),
    }
}
