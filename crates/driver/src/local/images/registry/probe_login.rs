//! Whether a registry answers and knows this engine, without anything being pulled.

use std::time::Duration;

use super::connection::{Registry, Trouble};
use crate::local::images::settings::ImageSettings;

/// Asks a registry, with the login that is there for it; what is wrong with it otherwise, in words.
pub async fn greet(host: &str, settings: &ImageSettings, patience: Duration) -> Result<(), String> {
    let registry = Registry::new(host, settings).await?;
    let asked = tokio::time::timeout(patience, registry.greet()).await;
    match asked.unwrap_or_else(|_| Err(Trouble::Unreachable("it does not answer".into()))) {
        // A login that is known may open single repositories only.
        Ok(()) | Err(Trouble::NotForLogin) => Ok(()),
        Err(trouble @ (Trouble::Closed | Trouble::LoginRefused)) => match (registry.login(), trouble) {
            // Whoever asks for a login speaks as a registry does, and may still give some images to everybody.
            (None, _) => Ok(()),
            (Some(login), Trouble::LoginRefused) => Err(format!("{host} refuses the login of {login}")),
            (Some(login), _) => Err(format!("{host} lets nobody in, and does not ask for the login of {login}")),
        },
        Err(Trouble::Unreachable(why)) => Err(format!("{host}: {why}")),
        Err(Trouble::Missing) => Err(format!("{host} does not answer like a registry: status 404")),
        Err(Trouble::Strange(why)) => Err(format!("{host} does not answer like a registry: {why}")),
    }
}
