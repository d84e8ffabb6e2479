//! The HTTP clients for registries. Reading the certificates of the host takes longer than a whole call, so all pulls
//! share them.

use std::time::Duration;

use reqwest::Client;
use tokio::sync::OnceCell;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// Returns the client for plain or encrypted registries, on this host or elsewhere.
pub(super) async fn shared_client(is_plain: bool, is_here: bool) -> Result<Client, String> {
    static ALL: [OnceCell<Client>; 4] = [const { OnceCell::const_new() }; 4];
    let one = &ALL[usize::from(is_plain) * 2 + usize::from(is_here)];
    let make = || async {
        // Reading the certificates blocks.
        let made = tokio::task::spawn_blocking(move || build_client(is_plain, is_here)).await;
        made.map_err(|error| error.to_string())?.map_err(|error| super::connection::root_cause(&error))
    };
    one.get_or_try_init(make).await.cloned()
}

fn build_client(is_plain: bool, is_here: bool) -> reqwest::Result<Client> {
    // An earlier call has installed the same provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = || {
        let client = Client::builder()
            .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            // An encrypted connection stays encrypted through redirects; a plain one may become encrypted.
            .https_only(!is_plain);
        // A proxy for outgoing traffic is not used for this host itself.
        if is_here { client.no_proxy() } else { client }
    };
    match client().build() {
        // A host without certificates can still call plain registries.
        Err(_) if is_plain => client().tls_certs_only([]).build(),
        built => built,
    }
}
