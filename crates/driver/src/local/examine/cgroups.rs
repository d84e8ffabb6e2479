//! Control groups: their version, and whether they can limit what instances use.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rustix::fs::{Access, access};

use super::read_setting;
use crate::findings::Finding;

const ROOT: &str = "/sys/fs/cgroup";

/// The controllers that every instance needs. Version 2 has no controller of devices; there, instances are kept from
/// devices because they cannot create device nodes and no mount shows other ones.
const NEEDED: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// Checks the control groups.
pub fn cgroups() -> Vec<Finding> {
    let root = Path::new(ROOT);
    let is_second = root.join("cgroup.controllers").exists();
    let directories = fs::read_dir(root).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
    let names: BTreeSet<String> = directories
        .flat_map(|entry| entry.file_name().to_string_lossy().split(',').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    if !is_second && names.is_empty() {
        let todo = "mount them: mount -t cgroup2 none /sys/fs/cgroup";
        return vec![Finding::failure("cgroups.version", "no control groups are mounted", todo)];
    }
    let (version, usable) = if is_second {
        ("version 2", read_setting(root.join("cgroup.controllers")).split(' ').map(str::to_owned).collect())
    } else if names.contains("unified") {
        ("version 1, with version 2 for systemd only", names)
    } else {
        ("version 1", names)
    };
    let mut findings = vec![check_version(root, is_second, version)];
    findings.push(check_controllers(&usable, is_second));
    findings.push(check_swap(is_second, is_swap_counted(root, is_second)));
    findings
}

fn check_version(root: &Path, is_second: bool, version: &str) -> Finding {
    const CHECK: &str = "cgroups.version";
    if !super::is_root() {
        return Finding::ok(CHECK, version);
    }
    let top = if is_second { root.to_owned() } else { root.join("memory") };
    match access(&top, Access::WRITE_OK) {
        Ok(()) => Finding::ok(CHECK, version),
        Err(error) => Finding::failure(
            CHECK,
            format!("{version}, but {} cannot be written: {error}", top.display()),
            "mount it for writing; a container needs its own groups (--cgroupns=private and a writable /sys/fs/cgroup)",
        ),
    }
}

fn check_controllers(usable: &BTreeSet<String>, is_second: bool) -> Finding {
    const CHECK: &str = "cgroups.controllers";
    let devices = if is_second { None } else { Some("devices") };
    let missing: Vec<&str> = NEEDED.into_iter().chain(devices).filter(|name| !usable.contains(*name)).collect();
    if !missing.is_empty() {
        let todo = if is_second {
            "they may be held by hierarchies of version 1, or switched off by cgroup_disable= on the kernel's command line"
        } else {
            "mount them below /sys/fs/cgroup, or boot with systemd.unified_cgroup_hierarchy=1"
        };
        let missing = missing.join(", ");
        Finding::failure(
            CHECK,
            format!("these cannot be limited, because their controllers are missing: {missing}"),
            todo,
        )
    } else if is_second {
        Finding::ok(
            CHECK,
            "processors, memory and processes can be limited; devices have no rules in this version, and are \
             isolated by mounts",
        )
    } else {
        Finding::ok(CHECK, "processors, memory, processes and devices can be limited")
    }
}

/// Returns whether swap is limited. The root group of version 2 has no such files, so another group is read.
fn is_swap_counted(root: &Path, is_second: bool) -> Option<bool> {
    if !is_second {
        return Some(root.join("memory/memory.memsw.limit_in_bytes").exists());
    }
    let below = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let group = below.into_iter().find(|path| path.join("memory.max").exists())?;
    Some(group.join("memory.swap.max").exists())
}

fn check_swap(is_second: bool, is_counted: Option<bool>) -> Finding {
    const CHECK: &str = "cgroups.swap";
    let has_swap = read_setting("/proc/swaps").lines().count() > 1;
    match (has_swap, is_counted) {
        (false, _) => Finding::ok(CHECK, "the host has no swap that instances could use up"),
        (true, Some(true)) => Finding::ok(CHECK, "swap is counted"),
        (true, counted) => Finding::warning(
            CHECK,
            match counted {
                Some(_) => "swap is not counted: an instance can use up the swap of the host besides its memory",
                None => "whether swap is counted is not known yet",
            },
            if is_second {
                "use a kernel with CONFIG_SWAP accounting"
            } else {
                "boot with swapaccount=1, or swapoff -a"
            },
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Level;

    #[test]
    fn missing_controllers_are_named() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
        let new = check_controllers(&names("cpuset cpu io memory pids"), true);
        assert!(new.level == Level::Ok && new.found.contains("devices have no rules"), "{new:?}");
        let old = check_controllers(&names("cpu cpuset memory pids"), false);
        assert!(old.level == Level::Failure && old.found.ends_with(": devices"), "{old:?}");
        assert!(check_controllers(&names("cpu"), true).found.contains("cpuset, memory, pids"));
    }
}
