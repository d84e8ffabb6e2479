//! Serves SSH on a port of this host, for measurements: `front PORT HOST_KEY_FILE FINGERPRINT` lets the owner of one key run
//! programs as whoever started it.

use std::sync::Arc;

use futures::future::BoxFuture;
use tarn_ssh::{Authorizer, Denied, Settings, Target, Visit};
use tokio::sync::watch;

#[path = "../tests/it/machine.rs"]
#[allow(clippy::unwrap_used, reason = "a machine for tests")]
mod machine;

struct OneKey(String);

impl Authorizer for OneKey {
    fn enter<'a>(&'a self, visit: Visit<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        Box::pin(async move {
            match visit.key.fingerprint == self.0 {
                true => Ok(Arc::new(machine::Host::default()) as Arc<dyn Target>),
                false => Err(Denied),
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
