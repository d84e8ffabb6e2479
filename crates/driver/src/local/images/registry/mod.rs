//! Registries: how they are called over HTTP, how this engine logs in, and how their manifests are parsed.
//!
//! Start reading at `sources`, which tries the mirrors and then the registry itself; `connection` is one registry,
//! `hosts` and `addresses` are what it may lead to, and `responses` is what is told apart of its responses.

mod addresses;
mod challenge;
pub(super) mod connection;
mod hosts;
pub(super) mod http_clients;
pub(super) mod manifest;
pub(super) mod responses;
pub(super) mod sources;

use std::sync::Arc;
use std::time::Duration;

use crate::local::images::settings::ImageSettings;
use connection::RegistryClient;
use http_clients::HttpClients;
use responses::RegistryError;

/// Calls a registry with its login, if there is one; returns what is wrong as a text for the operator.
pub async fn probe_registry_login(host: &str, settings: &ImageSettings, limit: Duration) -> Result<(), String> {
    let registry = RegistryClient::new(host, settings, Arc::new(HttpClients::new(settings))).trusted();
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
        Err(RegistryError::NotPublic(other)) => {
            Err(format!("{host} leads to {other}, which is private: list it in images.private_registries"))
        }
        Err(RegistryError::Unreachable(why)) => Err(format!("{host}: {why}")),
        Err(RegistryError::Unavailable(status)) => Err(format!("{host} responds with status {status}")),
        Err(RegistryError::NotFound) => Err(format!("{host} does not respond like a registry: status 404")),
        Err(RegistryError::Unexpected(why)) => Err(format!("{host} does not respond like a registry: {why}")),
    }
}
