//! Kernel settings of the network, which are files. Writing them may wait for the kernel's network lock.

use std::fs;
use std::io;

use super::links::netlink::io_failure;
use crate::Error;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// Returns whether the host forwards packets.
pub(super) fn is_forwarding_enabled() -> Result<bool, Error> {
    let value = fs::read_to_string(FORWARDING).map_err(|error| io_failure("read the forwarding setting", &error))?;
    Ok(value.trim() != "0")
}

/// Enables forwarding, without which nothing leaves the host. It is a setting of the host and stays on afterwards.
pub(super) fn enable_forwarding() -> Result<(), Error> {
    fs::write(FORWARDING, "1").map_err(|error| io_failure("turn forwarding on", &error))?;
    tracing::info!("enabled net.ipv4.ip_forward: instances reach other hosts through this one; it stays on");
    Ok(())
}

/// Disables IPv6 on an interface that is not up yet: it would open an unintended path to the host.
pub(super) fn disable_ipv6(name: &str) -> Result<(), Error> {
    write_if_exists(&format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1")
        .map_err(|error| io_failure("keep IPv6 off an interface", &error))
}

/// Keeps a bridge from answering ARP requests for other addresses of the host.
pub(super) fn restrict_arp_replies(name: &str) -> Result<(), Error> {
    fs::write(format!("/proc/sys/net/ipv4/conf/{name}/arp_ignore"), "1")
        .map_err(|error| io_failure("prepare the bridge of the cluster", &error))
}

/// Disables IPv6 on interfaces created later in the namespace of the calling thread; its loopback keeps `::1`.
pub(super) fn disable_ipv6_for_new_links() -> io::Result<()> {
    write_if_exists("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
}

/// A kernel without IPv6 has no such files, and needs no such setting.
fn write_if_exists(path: &str, value: &str) -> io::Result<()> {
    match fs::write(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
