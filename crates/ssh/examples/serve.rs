//! Serves SSH on a port of this host, for measurements: `serve PORT HOST_KEY_FILE FINGERPRINT` lets the owner of one
//! key run programs as the user that started it.

use std::sync::Arc;

use futures::future::BoxFuture;
use tarn_ssh::{Authorizer, Denied, Login, Settings, Target};
use tokio::sync::watch;

#[path = "../tests/it/target.rs"]
#[allow(clippy::unwrap_used, reason = "a target for tests")]
mod target;

struct OneKey(String);

impl Authorizer for OneKey {
    fn authorize<'a>(&'a self, login: Login<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        Box::pin(async move {
            if login.key.fingerprint == self.0 {
                Ok(Arc::new(target::LocalTarget::default()) as Arc<dyn Target>)
            } else {
                Err(Denied)
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, host_key, fingerprint] = arguments.as_slice() else { return Err("three arguments are needed".into()) };
    let settings = Settings::new(&std::fs::read_to_string(host_key)?)?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port.parse()?)).await?;
    let (_, settings) = watch::channel(Arc::new(settings));
    tarn_ssh::serve(listener, settings, Arc::new(OneKey(fingerprint.clone())), std::future::pending()).await;
    Ok(())
}
