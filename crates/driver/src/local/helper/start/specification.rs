//! The instance in the words of the OCI runtime specification.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use serde_json::{Value, json};

use super::root_filesystem::Mounts;
use super::seccomp;
use crate::local::helper::namespaces::Namespaces;
use crate::local::helper::order::Start;
use crate::local::protections::Protection;

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

/// What of /proc and /sys tells about the machine or about neighbours, and is hidden. The names of the files behind loop devices
/// hold the ids of other people's machines and volumes, and their counters what those do.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/softirqs",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/block",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/irq",
];

/// What of /proc could change the machine.
const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Where control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// Sockets may hold this part of the memory of an instance.
const SOCKETS_SHARE: i64 = 4;

/// How many terminals an instance may have: the machine has three or four thousand for everybody.
const MAX_TERMINALS: u32 = 256;

/// As many as the kernel can count: only where a test leaves limits out.
const UNLIMITED_TERMINALS: u32 = 1 << 20;

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
pub(in crate::local::helper) fn of(order: &Start, mounts: &Mounts, namespaces: &Namespaces) -> Value {
    let have = |protection| order.protections.have(protection);
    let (masked, read_only) = if have(Protection::Masks) { (MASKED, READ_ONLY) } else { (&[][..], &[][..]) };
    json!({
        "ociVersion": "1.2.0",
        "root": { "path": mounts.root, "readonly": false },
        "hostname": order.hostname,
        "process": process(order),
        "mounts": filesystems(order),
        "linux": {
            "namespaces": own_namespaces(namespaces, have(Protection::UserNamespace)),
            "cgroupsPath": order.cgroup,
            "resources": resources(order),
            "seccomp": have(Protection::Seccomp).then(seccomp::profile),
            "maskedPaths": masked,
            "readonlyPaths": read_only,
            "rootfsPropagation": "private",
            // Everybody inside may ping and serve on low ports: the network namespace is the instance's alone.
            "sysctl": { "net.ipv4.ping_group_range": "0 65535", "net.ipv4.ip_unprivileged_port_start": "0" },
        },
    })
}

/// The guest, as `root` of the instance. It must be able to gain privileges, or `sudo` would not work.
fn process(order: &Start) -> Value {
    let files = getrlimit(Resource::Nofile).maximum.map_or(MAX_FILES, |most| most.min(MAX_FILES));
    let capabilities = capabilities(order);
    json!({
        "terminal": false,
        "user": { "uid": 0, "gid": 0 },
        "args": ["/.tarn/guest"],
        "env": environment(order),
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
            // The control group has the last word; this is how the guest knows it.
            { "type": "RLIMIT_NPROC", "soft": order.pids, "hard": order.pids },
            // Whatever the engine itself may: nobody inside comes before everybody else on the machine.
            { "type": "RLIMIT_RTPRIO", "soft": 0, "hard": 0 },
            { "type": "RLIMIT_NICE", "soft": 0, "hard": 0 },
        ],
        "oomScoreAdj": oom_score(),
    })
}

/// The namespaces of an instance. Only a test leaves its own ids out.
fn own_namespaces(made: &Namespaces, has_ids: bool) -> Vec<Value> {
    let user = has_ids.then(|| json!({ "type": "user", "path": open_file(&made.user) }));
    let network = json!({ "type": "network", "path": open_file(&made.network) });
    let others = ["pid", "ipc", "uts", "mount", "cgroup"].map(|kind| json!({ "type": kind }));
    user.into_iter().chain([network]).chain(others).collect()
}

/// What `root` inside may do: only a test that leaves the list out gives it all that there is to give.
fn capabilities(order: &Start) -> Vec<String> {
    if order.protections.have(Protection::Capabilities) {
        return CAPABILITIES.iter().map(ToString::to_string).collect();
    }
    // With ids of its own it could have all of them, without it has no more than this process.
    let most = rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
    most.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
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
fn filesystems(order: &Start) -> Value {
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

/// An engine that the kernel is told to spare must not have instances that are spared, too.
fn oom_score() -> Option<i32> {
    let own = fs::read_to_string("/proc/self/oom_score_adj").ok()?.trim().parse::<i32>().ok()?;
    (own < 0).then_some(0)
}

fn resources(order: &Start) -> Value {
    json!({
        // The share of their time is limited by the driver, once the instance has begun.
        "cpu": { "cpus": order.cpus },
        "memory": memory(order),
        "hugepageLimits": huge_pages(),
        "pids": { "limit": order.pids },
        "devices": devices(order),
    })
}

/// The first version of control groups counts what lies in sockets only where that has a limit of its own.
fn memory(order: &Start) -> Value {
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

/// The operator's pool of huge pages is for others. Only where a control group can say so.
fn huge_pages() -> Vec<Value> {
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

/// Nothing but what every instance has, and the devices of its GPUs. Only the first version of control groups asks for this; in
/// the second one an instance cannot open what it has no node of, and it cannot make any.
fn devices(order: &Start) -> Vec<Value> {
    let own = order.devices.nodes.iter().map(
        |node| json!({ "allow": true, "type": "c", "major": node.major, "minor": node.minor, "access": node.access }),
    );
    let others = json!({ "allow": !order.protections.have(Protection::Devices), "access": "rwm" });
    std::iter::once(others).chain(own).collect()
}

/// Whether the kernel can keep an instance from using the machine's swap; in both versions of control groups it may not be
/// built in or be switched off, and then the file is missing. In the second version the topmost group never has it.
fn swap_is_counted() -> bool {
    let root = Path::new(GROUPS);
    let groups = || fs::read_dir(root).into_iter().flatten().flatten();
    root.join("memory/memory.memsw.limit_in_bytes").exists()
        || groups().any(|group| group.path().join("memory.swap.max").exists())
}

/// The descriptor survives the forks inside libcontainer, so each of its processes finds it under its own name.
fn open_file(descriptor: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}
