//! Kernel settings of the network, which are files. Writing them may wait for the kernel's network lock.

use std::fs;
use std::io;

use super::links::netlink::failed;
use crate::Error;

const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// Whether the machine forwards packets.
pub(super) fn forwards() -> Result<bool, Error> {
    let value = fs::read_to_string(FORWARDING).map_err(|error| failed("read whether the machine forwards", &error))?;
    Ok(value.trim() != "0")
}

/// Turns forwarding on, without which nothing leaves the machine. It is the host's setting and stays on afterwards.
pub(super) fn turn_forwarding_on() -> Result<(), Error> {
    fs::write(FORWARDING, "1").map_err(|error| failed("turn forwarding on", &error))?;
    tracing::info!("turned on net.ipv4.ip_forward: instances reach other machines through this one; it stays on");
    Ok(())
}

/// Keeps IPv6 off an interface that is not up yet: it would be a way to the host that the machine did not plan.
pub(super) fn no_ipv6(name: &str) -> Result<(), Error> {
    write_if_there(&format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1")
        .map_err(|error| failed("keep IPv6 off an interface", &error))
}

/// Keeps a bridge from answering who has one of the host's other addresses.
pub(super) fn only_own_addresses(name: &str) -> Result<(), Error> {
    fs::write(format!("/proc/sys/net/ipv4/conf/{name}/arp_ignore"), "1")
        .map_err(|error| failed("prepare the bridge of the cluster", &error))
}

/// Keeps IPv6 off the interfaces that will be made in the namespace of the calling thread; its loopback keeps `::1`.
pub(super) fn no_new_ipv6() -> io::Result<()> {
    write_if_there("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
}

/// A kernel without IPv6 has no such files, and needs no such setting.
fn write_if_there(path: &str, value: &str) -> io::Result<()> {
    match fs::write(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
