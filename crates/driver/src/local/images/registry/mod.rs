//! Registries: how they are called over HTTP, how this engine logs in, and how their manifests are parsed.
//!
//! Start reading at `sources`, which tries the mirrors and then the registry itself; `connection` is one registry.

mod challenge;
pub(super) mod connection;
mod http_clients;
pub(super) mod manifest;
pub(super) mod probe_login;
pub(super) mod sources;
