//! HTTP: calls to the API, transfers to and from signed URLs, and retries. Start reading at [`api_client`].
//!
//! This module knows nothing about single commands.

pub(crate) mod addresses;
pub(crate) mod api_client;
pub(crate) mod backoff;
pub(crate) mod http_client;
pub(crate) mod responses;
pub(crate) mod transfers;
