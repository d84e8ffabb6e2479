//! Checks that have to try something: in namespaces that end with the trial, so that nothing is left.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::{AS_ROOT, nearest_existing};
use crate::Error;
use crate::findings::Finding;
use crate::local::helper::order::{Order, Probe, Report};
use crate::local::helper_process::HelperProcess;
use crate::local::network::survey;

/// How long the helper may take.
const HELPER_TIMEOUT: Duration = Duration::from_secs(15);

/// Tries whether ids can be mapped on the filesystem of the data, below an overlay. `helper` is the command line of the
/// helper.
pub async fn mounts(helper: &[OsString], data: &Path) -> Finding {
    const CHECK: &str = "kernel.idmapped_mounts";
    if !super::is_root() {
        return Finding::skipped(CHECK, "only root may mount", AS_ROOT);
    }
    let directory = nearest_existing(data);
    let shown = directory.display().to_string();
    match tokio::time::timeout(HELPER_TIMEOUT, probe_mounts(helper, &directory)).await {
        Ok(Ok(())) => {
            Finding::ok(CHECK, format!("user ids can be mapped below an overlay on the filesystem of {shown}"))
        }
        Ok(Err(error)) => Finding::failure(
            CHECK,
            format!("the root of an instance cannot be put together on the filesystem of {shown}: {error}"),
            "keep the data on ext4, XFS or btrfs (--data), with a kernel of 5.19 or later",
        ),
        Err(_) => Finding::failure(CHECK, "the try did not end in time", "see the kernel's log (dmesg)"),
    }
}

async fn probe_mounts(helper: &[OsString], directory: &Path) -> std::io::Result<()> {
    let directory = directory.canonicalize()?;
    let mut helper = HelperProcess::spawn_program(helper)?;
    let talk = async {
        helper.send_order(&Order::Probe(Probe { directory })).await?;
        match helper.read_report().await? {
            Report::Done => Ok(()),
            _ => Err(std::io::Error::other("the helper sent an unexpected report")),
        }
    };
    let done = talk.await;
    helper.finish(done.is_ok()).await;
    done
}

/// Tries whether the kernel supports the networks of clusters and their firewall.
pub async fn networks() -> Vec<Finding> {
    const LINKS: &str = "kernel.links";
    const FIREWALL: &str = "kernel.nf_tables";
    if !super::is_root() {
        return [LINKS, FIREWALL].map(|check| Finding::skipped(check, "only root may create networks", AS_ROOT)).into();
    }
    let (links, firewall) = match survey::rehearse_network().await {
        Ok(tried) => tried,
        Err(error) => (Err(error.clone()), Err(error)),
    };
    let judge = |check, tried: Result<(), Error>, well: &str, todo: &str| match tried {
        Ok(()) => Finding::ok(check, well),
        Err(error) => Finding::failure(check, format!("tried in a namespace of its own: {error}"), todo),
    };
    vec![
        judge(
            LINKS,
            links,
            "bridges and pairs of interfaces can be created",
            "modprobe bridge veth; they need CONFIG_BRIDGE and CONFIG_VETH",
        ),
        judge(
            FIREWALL,
            firewall,
            "the firewall of clusters loads",
            "modprobe nf_tables nft_fib_inet nft_nat nft_masq nft_ct; install the package nftables",
        ),
    ]
}
