//! Whether instances see their own share of the host in `/proc`, or the whole host.

use std::ffi::OsString;
use std::path::Path;

use super::AS_ROOT;
use crate::findings::Finding;
use crate::local::lxcfs::{TIMEOUT, ask, mounted_device};

const CHECK: &str = "tools.lxcfs";
const START: &str = "restart it (systemctl restart lxcfs); running instances show the new one within seconds";

/// Checks the lxcfs that is mounted at a path. `helper` is the command line of the helper.
pub async fn lxcfs(helper: &[OsString], directory: Option<&Path>) -> Finding {
    let Some(directory) = directory else {
        return Finding::ok(CHECK, "instances.lxcfs is empty: instances see memory, CPUs and load of the whole host");
    };
    let shown = directory.display();
    match mounted_device(directory) {
        Err(error) => {
            Finding::failure(CHECK, format!("the mounts of this host cannot be read: {error}"), "mount /proc")
        }
        Ok(None) => Finding::note(
            CHECK,
            format!(
                "lxcfs is not mounted at {shown}: programs in instances that size themselves by /proc/meminfo or the \
                 number of CPUs see the whole host"
            ),
            "install the package lxcfs and start its service (systemctl enable --now lxcfs)",
        ),
        Ok(Some(_)) if !super::is_root() => Finding::skipped(CHECK, "only root may ask lxcfs for instances", AS_ROOT),
        // A helper that lxcfs does not answer was killed, and ends when lxcfs does.
        Ok(Some(_)) => match ask(helper, directory).await {
            Ok(Ok(())) => Finding::ok(CHECK, format!("lxcfs at {shown} shows instances their own share of the host")),
            Ok(Err(error)) => {
                Finding::warning(CHECK, format!("lxcfs at {shown} has ended and is still mounted: {error}"), START)
            }
            Err(_) => Finding::warning(
                CHECK,
                format!(
                    "lxcfs at {shown} does not answer within {} s: programs in instances that ask it wait",
                    TIMEOUT.as_secs()
                ),
                START,
            ),
        },
    }
}
