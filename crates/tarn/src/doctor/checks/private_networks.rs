//! Whether instances reach private networks, and how to close them.

use tarn_driver::findings::Finding;
use tarn_store::examine;
use tarn_store::installation;

use crate::doctor::target::Target;

const CHECK: &str = "network.private";

/// The first schema whose installations close private networks.
const FIRST_CLOSED: i64 = 9;

const HOW_TO_CLOSE: &str = "set network.private to \"closed\", and network.allow to what instances need there";

/// Checks which rule applies.
pub(in crate::doctor) async fn check_private_networks(target: &Target) -> Finding {
    let is_configured = target.config.network.private.is_some();
    let keeps_open = match is_older_installation(target).await {
        Ok(keeps_open) => keeps_open,
        // Then it does not matter.
        Err(_) if is_configured => false,
        Err(why) => return Finding::skipped(CHECK, why, "set network.private to \"closed\" or \"open\""),
    };
    judge(target.config.network.policy(keeps_open).closes_private, is_configured)
}

fn judge(is_closed: bool, is_configured: bool) -> Finding {
    match (is_closed, is_configured) {
        (true, _) => Finding::ok(CHECK, "instances reach only those private networks that network.allow lists"),
        (false, true) => {
            Finding::note(CHECK, "instances reach private networks, as network.private says", HOW_TO_CLOSE)
        }
        (false, false) => Finding::warning(
            CHECK,
            "instances reach private networks, because this installation is older than the rule that closes them",
            HOW_TO_CLOSE,
        ),
    }
}

/// Returns whether the installation existed before private networks were closed by default.
async fn is_older_installation(target: &Target) -> Result<bool, String> {
    if target.database_file().is_some_and(|file| !file.exists()) {
        return Ok(false);
    }
    let store = target.open_store().await?;
    let older = async {
        match store.read(examine::version).await? {
            None => Ok(false),
            Some(version) if version < FIRST_CLOSED => Ok(true),
            Some(_) => store.read(installation::keeps_permissive_defaults).await,
        }
    };
    older.await.map_err(|error: tarn_store::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use tarn_driver::findings::Level;

    use super::*;

    #[test]
    fn open_networks_are_reported_with_a_remedy() {
        assert_eq!(judge(true, false).level, Level::Ok);
        assert_eq!((judge(false, true).level, judge(false, false).level), (Level::Note, Level::Warning));
        assert!(judge(false, false).todo.is_some_and(|todo| todo.contains("network.private")));
    }
}
