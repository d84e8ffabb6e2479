//! The instance in the words of the OCI runtime specification.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};

use super::mounts::Mounts;
use super::namespaces::Namespaces;
use super::order::Start;
use super::seccomp;

/// What `root` may do inside. In a user namespace each of these reaches only the instance's own things. Not among them is
/// making device files, mounting, and everything about the kernel.
const CAPABILITIES: &[&str] = &[
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_RAW",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// What of /proc and /sys tells about the machine, and is hidden.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// What of /proc could change the machine.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// How many files a process may have open, where the machine allows it.
const MAX_FILES: u64 = 1 << 20;

/// The guest's own environment.
const GUEST_ENVIRONMENT: &[&str] = &[
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LISTEN_FDS=1",
    "LISTEN_PID=1",
];

/// The specification of an instance whose root is mounted and whose user and network namespace exist.
pub(super) fn of(order: &Start, mounts: &Mounts, namespaces: &Namespaces) -> Value {
    json!({
        "ociVersion": "1.2.0",
        "root": { "path": mounts.root, "readonly": false },
        "hostname": order.hostname,
        "process": process(order),
        "mounts": filesystems(),
        "linux": {
            "namespaces": [
                { "type": "user", "path": open_file(&namespaces.user) },
                { "type": "network", "path": open_file(&namespaces.network) },
                { "type": "pid" },
                { "type": "ipc" },
                { "type": "uts" },
                { "type": "mount" },
                { "type": "cgroup" },
            ],
            "cgroupsPath": order.cgroup,
            "resources": resources(order),
            "seccomp": seccomp::profile(),
            "maskedPaths": MASKED,
            "readonlyPaths": READ_ONLY,
            "rootfsPropagation": "private",
            // Everybody inside may ping and serve on low ports: the network namespace is the instance's alone.
            "sysctl": { "net.ipv4.ping_group_range": "0 65535", "net.ipv4.ip_unprivileged_port_start": "0" },
        },
    })
}

/// The guest, as `root` of the instance. It must be able to gain privileges, or `sudo` would not work.
fn process(order: &Start) -> Value {
    let files = getrlimit(Resource::Nofile).maximum.map_or(MAX_FILES, |most| most.min(MAX_FILES));
    json!({
        "terminal": false,
        "user": { "uid": 0, "gid": 0 },
        "args": ["/.tarn/guest"],
        "env": environment(order),
        "cwd": "/",
        "capabilities": {
            "bounding": CAPABILITIES,
            "effective": CAPABILITIES,
            "permitted": CAPABILITIES,
            "inheritable": [],
            "ambient": [],
        },
        "rlimits": [
            { "type": "RLIMIT_NOFILE", "soft": files, "hard": files },
            // The control group has the last word; this is how the guest knows it.
            { "type": "RLIMIT_NPROC", "soft": order.pids, "hard": order.pids },
        ],
    })
}

/// The guest's environment. What a container image says about its programs is for the guest to judge.
fn environment(order: &Start) -> Vec<String> {
    let mut environment: Vec<String> = GUEST_ENVIRONMENT.iter().map(ToString::to_string).collect();
    if let Some(container) = &order.container
        && let Ok(image) = serde_json::to_string(&container.image)
    {
        environment.push(format!("{}={image}", tarn_link::Image::VARIABLE));
    }
    environment
}

/// The filesystems that only the instance itself can mount, because they show its namespaces; the others are there already.
fn filesystems() -> Value {
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
        { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
          "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"] },
        { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"] },
    ])
}

fn resources(order: &Start) -> Value {
    let memory = i64::try_from(order.memory_bytes).unwrap_or(i64::MAX);
    json!({
        // The share of their time is limited by the driver, once the instance has begun.
        "cpu": { "cpus": order.cpus },
        "memory": if swap_is_counted() { json!({ "limit": memory, "swap": memory }) } else { json!({ "limit": memory }) },
        "pids": { "limit": order.pids },
        "devices": [{ "allow": false, "access": "rwm" }],
    })
}

/// Whether the kernel can keep an instance from using the machine's swap; in both versions of control groups it may not be
/// built in or be switched off, and then the file is missing. In the second version the topmost group never has it.
fn swap_is_counted() -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let groups = || fs::read_dir(root).into_iter().flatten().flatten();
    root.join("memory/memory.memsw.limit_in_bytes").exists()
        || groups().any(|group| group.path().join("memory.swap.max").exists())
}

/// The descriptor survives the forks inside libcontainer, so each of its processes finds it under its own name.
fn open_file(descriptor: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}
