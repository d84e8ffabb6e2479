//! `/etc` of the image.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::copy;
use crate::local::host::{files, name_servers};

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
    name_servers::find_name_servers().iter().map(|address| format!("nameserver {address}\n")).collect()
}
