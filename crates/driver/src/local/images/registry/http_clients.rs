//! The clients that registries are asked with. Reading the certificates of the machine takes longer than a whole call, so that all
//! pulls share them.

use std::time::Duration;

use reqwest::Client;
use tokio::sync::OnceCell;

/// How long a connection may take to be made.
const CONNECTING: Duration = Duration::from_secs(8);

/// A client for registries that speak without encryption or with it, elsewhere or on this machine.
pub(in crate::local::images) async fn get(is_plain: bool, is_here: bool) -> Result<Client, String> {
    static ALL: [OnceCell<Client>; 4] = [const { OnceCell::const_new() }; 4];
    let one = &ALL[usize::from(is_plain) * 2 + usize::from(is_here)];
    let make = || async {
        // Certificates are files, and there are many of them.
        let made = tokio::task::spawn_blocking(move || build(is_plain, is_here)).await;
        made.map_err(|error| error.to_string())?.map_err(|error| super::connection::reason(&error))
    };
    one.get_or_try_init(make).await.cloned()
}

fn build(is_plain: bool, is_here: bool) -> reqwest::Result<Client> {
    // Whoever was first has chosen the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = || {
        let client = Client::builder()
            .user_agent(concat!("tarn/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECTING)
            // What was encrypted stays so, wherever the registry sends us; what was not may become so.
            .https_only(!is_plain);
        // Whoever forwards what goes out is not asked about what stays on this machine.
        if is_here { client.no_proxy() } else { client }
    };
    match client().build() {
        // A machine without certificates can still speak to those that need none.
        Err(_) if is_plain => client().tls_certs_only([]).build(),
        built => built,
    }
}
