//! `/etc` of the image.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::copy;
use crate::local::host::files;

/// What is copied from the host.
const COPIED: &str = "\
    adduser.conf alternatives apt/keyrings apt/preferences apt/preferences.d apt/trusted.gpg apt/trusted.gpg.d \
    bash.bashrc bash_completion bash_completion.d ca-certificates ca-certificates.conf debconf.conf debian_version \
    deluser.conf dpkg ethertypes fonts gai.conf glvnd groff host.conf inputrc issue java-11-openjdk java-17-openjdk \
    java-21-openjdk ld.so.cache ld.so.conf ld.so.conf.d libaudit.conf locale.alias locale.conf locale.gen localtime \
    login.defs lsb-release magic magic.mime manpath.config mime.types nanorc netconfig networks OpenCL os-release \
    pam.conf pam.d perl profile profile.d protocols python3 python3.9 python3.10 python3.11 python3.12 python3.13 \
    python3.14 rpc securetty security services shells skel ssl/certs ssl/openssl.cnf subversion terminfo timezone \
    ucf.conf vim vulkan wgetrc X11 xattr.conf xdg xml";

/// What is copied unless it contains a password.
const CHECKED: &[&str] =
    &["apt/apt.conf", "apt/apt.conf.d", "apt/sources.list", "apt/sources.list.d", "environment", "pip.conf"];

const NSSWITCH: &str = "\
passwd:         files
group:          files
shadow:         files
gshadow:        files
hosts:          files dns
networks:       files
protocols:      files
services:       files
ethers:         files
rpc:            files
";

const SUDOERS: &str = "\
Defaults env_reset
Defaults secure_path=\"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\"
root ALL=(ALL:ALL) ALL
%sudo ALL=(ALL:ALL) NOPASSWD:ALL
@includedir /etc/sudoers.d
";

/// The minimal `/etc/hosts`.
pub(super) const HOSTS: &str = "127.0.0.1 localhost\n";

/// Used if only the host itself can reach its name servers.
const PUBLIC_NAME_SERVERS: &str = "nameserver 9.9.9.9\nnameserver 1.1.1.1\n";

pub(super) fn build_etc(etc: &Path) -> io::Result<()> {
    for name in ["apt", "ssl", "ssh", "sudoers.d", "init.d", "cron.d", "cron.daily", "default", "logrotate.d", "opt"] {
        files::ensure_directory(&etc.join(name), 0o755)?;
    }
    let host = Path::new("/etc");
    for name in COPIED.split_whitespace() {
        copy::copy_public(&host.join(name), &etc.join(name))?;
    }
    for name in CHECKED {
        copy::copy_without_secrets(&host.join(name), &etc.join(name))?;
    }
    fs::write(etc.join("nsswitch.conf"), NSSWITCH)?;
    fs::write(etc.join("hosts"), HOSTS)?;
    fs::write(etc.join("hostname"), "localhost\n")?;
    fs::write(etc.join("machine-id"), "")?;
    fs::write(etc.join("fstab"), "")?;
    fs::write(etc.join("sudoers"), SUDOERS)?;
    fs::set_permissions(etc.join("sudoers"), fs::Permissions::from_mode(0o440))?;
    fs::write(etc.join("resolv.conf"), name_servers())?;
    symlink("/proc/self/mounts", etc.join("mtab"))
}

/// Returns `/etc/resolv.conf` for the host's current name servers.
pub(super) fn name_servers() -> String {
    reachable_name_servers(&read_or_empty("/etc/resolv.conf"), &read_or_empty("/run/systemd/resolve/resolv.conf"))
}

fn read_or_empty(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the name servers of the host that an instance can reach.
fn reachable_name_servers(own: &str, upstream: &str) -> String {
    let reachable = |text: &str| -> String {
        let servers = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
        let addresses = servers.filter_map(|rest| rest.trim().parse::<IpAddr>().ok());
        addresses
            .filter(|address| address.is_ipv4() && !address.is_loopback())
            .map(|address| format!("nameserver {address}\n"))
            .collect()
    };
    [reachable(own), reachable(upstream), PUBLIC_NAME_SERVERS.to_owned()]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_name_servers_are_not_passed_on() {
        let own = "search lan\nnameserver 127.0.0.53\noptions edns0\n";
        assert_eq!(reachable_name_servers("nameserver 10.0.0.2\nnameserver ::1\n", ""), "nameserver 10.0.0.2\n");
        assert_eq!(reachable_name_servers(own, "nameserver 192.0.2.1\n"), "nameserver 192.0.2.1\n");
        assert_eq!(reachable_name_servers(own, ""), PUBLIC_NAME_SERVERS);
    }
}
