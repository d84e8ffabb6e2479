//! The OCI runtime specification of an instance.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use serde_json::{Value, json};

use super::root_filesystem::RootMounts;
use super::seccomp;
use crate::local::capabilities;
use crate::local::helper::namespaces::Namespaces;
use crate::local::helper::order::Start;
use crate::local::protections::Protection;

/// Paths in /proc and /sys that reveal something about the host or other tenants, and are hidden. The file names of
/// loop devices contain the ids of other instances and volumes, and their counters show their activity.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/diskstats",
    "/proc/fs/xfs",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/softirqs",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmstat",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/fs/xfs",
    "/sys/kernel/irq",
];

/// The processors, each of which counts how often it was too hot: every tenant's load shows there.
const PROCESSORS: &str = "/sys/devices/system/cpu";
const HEAT: &str = "thermal_throttle";

/// Paths in /proc that could change the host.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// The control group hierarchy.
const GROUPS: &str = "/sys/fs/cgroup";

/// The fraction of an instance's memory that sockets may use: one fourth.
const SOCKETS_SHARE: i64 = 4;

/// How many terminals an instance may have; the host has three or four thousand for all.
const MAX_TERMINALS: u32 = 256;

/// The kernel's maximum, for a test that disables limits.
const UNLIMITED_TERMINALS: u32 = 1 << 20;

/// How many files a process may have open, if the host allows that many.
const MAX_FILES: u64 = 1 << 20;

/// The guest's own environment.
const GUEST_ENVIRONMENT: &[&str] = &[
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LISTEN_FDS=1",
    "LISTEN_PID=1",
];

/// Returns the specification of an instance whose root is mounted and whose user and network namespaces exist.
pub(super) fn runtime_specification(order: &Start, mounts: &RootMounts, namespaces: &Namespaces) -> Value {
    let have = |protection| order.protections.have(protection);
    let (masked, read_only) = if have(Protection::Masks) { (masked_paths(), READ_ONLY) } else { Default::default() };
    json!({
        "ociVersion": "1.2.0",
        "root": { "path": mounts.root, "readonly": false },
        "hostname": order.hostname,
        "process": process_section(order),
        "mounts": instance_filesystems(order),
        "linux": {
            "namespaces": own_namespaces(namespaces, have(Protection::UserNamespace)),
            "cgroupsPath": order.cgroup,
            "resources": resource_limits(order),
            "seccomp": have(Protection::Seccomp).then(|| seccomp::seccomp_profile(have(Protection::RawSockets))),
            "maskedPaths": masked,
            "readonlyPaths": read_only,
            "rootfsPropagation": "private",
            // All users inside may ping and listen on low ports: the network namespace belongs to the instance alone.
            "sysctl": { "net.ipv4.ping_group_range": "0 65535", "net.ipv4.ip_unprivileged_port_start": "0" },
        },
    })
}

/// The hidden paths of this host.
fn masked_paths() -> Vec<String> {
    let processors = fs::read_dir(PROCESSORS).into_iter().flatten().flatten();
    let heat = processors.map(|processor| processor.path().join(HEAT)).filter(|counters| counters.exists());
    let heat = heat.map(|counters| counters.display().to_string());
    MASKED.iter().map(ToString::to_string).chain(heat).collect()
}

/// The guest, as `root` of the instance. It must be able to gain privileges, or `sudo` would not work.
fn process_section(order: &Start) -> Value {
    let files = getrlimit(Resource::Nofile).maximum.map_or(MAX_FILES, |most| most.min(MAX_FILES));
    let capabilities = guest_capabilities(order);
    json!({
        "terminal": false,
        "user": { "uid": 0, "gid": 0 },
        "args": ["/.tarn/guest"],
        "env": guest_environment(order),
        "cwd": "/",
        "capabilities": {
            "bounding": capabilities,
            "effective": capabilities,
            "permitted": capabilities,
            "inheritable": [],
            "ambient": [],
        },
        "rlimits": [
            { "type": "RLIMIT_NOFILE", "soft": files, "hard": files },
            // The control group enforces this limit; the guest reads it here.
            { "type": "RLIMIT_NPROC", "soft": order.pids, "hard": order.pids },
            // Independent of the engine's own limits: no process inside gets priority over the rest of the host.
            { "type": "RLIMIT_RTPRIO", "soft": 0, "hard": 0 },
            { "type": "RLIMIT_NICE", "soft": 0, "hard": 0 },
        ],
        "oomScoreAdj": oom_score(),
    })
}

/// The namespaces of an instance. Only a test omits the user namespace.
fn own_namespaces(made: &Namespaces, has_ids: bool) -> Vec<Value> {
    let user = has_ids.then(|| json!({ "type": "user", "path": open_file(&made.user) }));
    let network = json!({ "type": "network", "path": open_file(&made.network) });
    let others = ["pid", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
    user.into_iter().chain([network]).chain(others).collect()
}

/// The capabilities of `root` inside; a test that disables the list gets all of them.
fn guest_capabilities(order: &Start) -> Vec<String> {
    let all = !order.protections.have(Protection::Capabilities);
    // Without a user namespace it cannot have more than this process.
    let own = || rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    let mut held = if all { own() } else { capabilities::INSIDE };
    held.set(CapabilitySet::NET_RAW, !order.protections.have(Protection::RawSockets));
    held.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

/// The guest's environment. The guest interprets the configuration of a container image.
fn guest_environment(order: &Start) -> Vec<String> {
    let mut environment: Vec<String> = GUEST_ENVIRONMENT.iter().map(ToString::to_string).collect();
    if let Some(container) = &order.container
        && let Ok(image) = serde_json::to_string(&container.image)
    {
        environment.push(format!("{}={image}", tarn_link::Image::VARIABLE));
    }
    environment
}

/// The filesystems that only the instance itself can mount, because they show its namespaces; the others are mounted
/// already.
fn instance_filesystems(order: &Start) -> Value {
    let change = if order.protections.have(Protection::Masks) { "ro" } else { "rw" };
    let terminals = if order.protections.have(Protection::CgroupLimits) { MAX_TERMINALS } else { UNLIMITED_TERMINALS };
    let terminals = format!("max={terminals}");
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
        { "destination": "/dev/pts", "type": "devpts", "source": "devpts",
          "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5", terminals] },
        { "destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", change] },
    ])
}

/// If the engine is exempt from the OOM killer, its instances must not be.
fn oom_score() -> Option<i32> {
    let own = fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse::<i32>().ok()?;
    (own < 0).then_some(0)
}

fn resource_limits(order: &Start) -> Value {
    json!({
        // The driver limits the CPU time once the instance has begun.
        "cpu": { "cpus": order.cpus },
        "memory": memory_limits(order),
        "hugepageLimits": huge_page_limits(),
        "pids": { "limit": order.pids },
        "devices": device_rules(order),
    })
}

/// Version 1 of control groups counts socket memory only where it has a separate limit.
fn memory_limits(order: &Start) -> Value {
    let bytes = i64::try_from(order.memory_bytes).unwrap_or(i64::MAX);
    let mut limits = json!({ "limit": bytes });
    if swap_is_counted() {
        limits["swap"] = bytes.into();
    }
    if Path::new(GROUPS).join("memory/memory.kmem.tcp.limit_in_bytes").exists() {
        limits["kernelTCP"] = (bytes / SOCKETS_SHARE).into();
    }
    limits
}

/// Huge pages are reserved for other programs of the operator, where a control group can enforce that.
fn huge_page_limits() -> Vec<Value> {
    if !Path::new(GROUPS).join("hugetlb").exists() {
        return Vec::new();
    }
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let kilobytes = sizes.filter_map(|size| {
        size.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok()
    });
    let named = kilobytes.map(|size| match (size >> 20, size >> 10) {
        (0, 0) => format!("{size}KB"),
        (0, megabytes) => format!("{megabytes}MB"),
        (gigabytes, _) => format!("{gigabytes}GB"),
    });
    named.map(|size| json!({ "pageSize": size, "limit": 0 })).collect()
}

/// The devices that every instance has, and those of its GPUs. Only version 1 of control groups uses this; in version 2
/// an instance cannot open a device without a node, and it cannot create nodes.
fn device_rules(order: &Start) -> Vec<Value> {
    let own = order.devices.nodes.iter().map(
        |node| json!({ "allow": true, "type": "c", "major": node.major, "minor": node.minor, "access": node.access }),
    );
    let others = json!({ "allow": !order.protections.have(Protection::Devices), "access": "rwm" });
    std::iter::once(others).chain(own).collect()
}

/// Returns whether the kernel can limit swap; in both versions of control groups that may be disabled, and then the
/// file is missing. In version 2 the root group never has it.
fn swap_is_counted() -> bool {
    let root = Path::new(GROUPS);
    let groups = || fs::read_dir(root).into_iter().flatten().flatten();
    root.join("memory/memory.memsw.limit_in_bytes").exists()
        || groups().any(|group| group.path().join("memory.swap.max").exists())
}

/// The descriptor survives the forks inside libcontainer, so each of its processes finds it under this path.
fn open_file(descriptor: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}
