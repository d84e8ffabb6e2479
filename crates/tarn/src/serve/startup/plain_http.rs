//! Plain HTTP on addresses that other hosts can reach has to be allowed by the operator.

use tarn_store::{Database, Store, installation};

use crate::config::Config;
use crate::failure::{Failure, Result, StartFailure, StartResult};

/// Refuses a new installation before anything of it is created.
pub(in crate::serve) fn check_new_installation(config: &Config) -> Result<()> {
    match config.database()? {
        Database::Sqlite(path) if !path.exists() => refusal(config).map_or(Ok(()), Err),
        Database::Sqlite(_) | Database::Postgres(_) => Ok(()),
    }
}

/// Refuses plain HTTP, unless the installation is older than this rule.
pub(in crate::serve) async fn check_installation(config: &Config, store: &Store) -> StartResult<()> {
    let Some(refusal) = refusal(config) else { return Ok(()) };
    let is_older = store.read(installation::keeps_permissive_defaults).await;
    if is_older.map_err(|e| StartFailure::with_cause("cannot read the installation", e))? {
        tracing::warn!("{refusal}; it is served because this installation is older than the option");
        return Ok(());
    }
    Err(refusal.into())
}

/// Returns why the configuration is refused; `None` if it is not.
fn refusal(config: &Config) -> Option<Failure> {
    let listeners = config.unencrypted_listeners();
    if config.insecure_http || listeners.is_empty() {
        return None;
    }
    let named: Vec<_> = listeners.iter().map(|(option, listen)| format!("{option} {listen}")).collect();
    Some(Failure(format!(
        "{} would send API keys and data unencrypted over the network: serve HTTPS with --tls-cert and --tls-key, or \
         listen on a loopback address; behind a proxy that terminates TLS, or on a network that you trust, allow it \
         with --insecure-http",
        named.join(" and ")
    )))
}

#[cfg(test)]
mod tests {
    use tarn_store::testing::{DatabaseKind, World};

    use super::*;

    /// A new installation is refused, an older one is served, and the option allows it.
    #[tokio::test]
    async fn older_installation_is_served() {
        let world = World::open(DatabaseKind::Sqlite).await.unwrap();
        let mut config: Config = toml::from_str("listen = '0.0.0.0:7070'").unwrap();
        let refused = Failure::from(check_installation(&config, &world.store).await.unwrap_err()).to_string();
        assert!(refused.contains("--listen 0.0.0.0:7070") && refused.contains("--insecure-http"), "{refused}");
        config.insecure_http = true;
        check_installation(&config, &world.store).await.unwrap();
        config.insecure_http = false;
        let older = world.store.write(|tx| installation::set(tx, "permissive_defaults", "1")).await;
        older.unwrap();
        check_installation(&config, &world.store).await.unwrap();
    }
}
