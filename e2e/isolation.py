"""The attempts of root inside an instance to break out, and the protections that refuse them.

Each attempt is a function in a file of `isolation_attempts`, which runs inside the instance. The table here has the name of
each attempt, the protections that refuse it, and the expected error. A test shows that the attempt succeeds in an
engine without exactly these protections. Namespaces cannot be switched off, because nothing would be left of the
instance; there, root of the host makes the same attempt and succeeds.
"""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from instances import ENVIRONMENT

PARTS = ("calls", "processes", "devices", "proc_and_sys", "namespaces", "kernel", "network", "exhaustion", "run")
"""The files of the attempts. They are sent as one text, so they share their names."""
SOURCE = "\n\n".join(Path(__file__).with_name("isolation_attempts").joinpath(f"{part}.py").read_text() for part in PARTS)
PROTECTIONS = (
    "seccomp", "capabilities", "user-namespace", "masks", "devices", "cgroup-limits", "firewall", "addresses", "disk-limit",
    "own-counts", "raw-sockets",
)  # fmt: skip

SECCOMP, CAPABILITIES, MASKS, LIMITS, FIREWALL = "seccomp", "capabilities", "masks", "cgroup-limits", "firewall"
ADDRESSES, IDS, DEVICES = "addresses", "user-namespace", "devices"
OWN_COUNTS, RAW_SOCKETS = "own-counts", "raw-sockets"
NAMESPACES = ("namespaces",)
"""What cannot be switched off."""


class Attempt(NamedTuple):
    """The protections that refuse an attempt and the errors that they cause; `optional` means that not every kernel
    supports it. An attempt that is `raw` needs raw sockets, which instances do not have: it is made in an engine that
    allows them, because it is about another protection."""

    protections: tuple[str, ...]
    refusals: tuple[str, ...]
    optional: bool = False
    raw: bool = False

    @property
    def proof(self) -> tuple[str, ...]:
        """The protections that must be left out for the attempt to succeed."""
        return self.protections + ((RAW_SOCKETS,) if self.raw else ())


def refused_by(*protections: str, says="EPERM", optional=False, raw=False) -> Attempt:
    return Attempt(protections, tuple(says.split()), optional, raw)


ALL_RIGHTS = (SECCOMP, CAPABILITIES, IDS)

ATTEMPTS: dict[str, Attempt] = {
    # Other processes.
    "signal_a_process_of_the_host": refused_by(*NAMESPACES, says="ENOENT"),
    "trace_a_process_of_the_host": refused_by(*NAMESPACES, says="ENOENT"),
    "read_memory_of_a_process_of_the_host": refused_by(*NAMESPACES, says="ENOENT"),
    "see_namespaces_of_the_host": refused_by(*NAMESPACES, says="words"),
    "enter_a_namespace": refused_by(SECCOMP, CAPABILITIES),
    # Devices and disks.
    "open_fuse": refused_by(DEVICES, says="ENOENT"),
    "open_host_devices": refused_by(DEVICES, says="words"),
    "attach_a_loop_device": refused_by(DEVICES),
    "make_a_tunnel": refused_by(DEVICES),
    "make_a_disk_device": refused_by(CAPABILITIES, DEVICES, IDS),
    "make_a_memory_device": refused_by(CAPABILITIES, DEVICES, IDS),
    "read_kernel_messages": refused_by(*ALL_RIGHTS),
    "read_kcore": refused_by(MASKS, CAPABILITIES, IDS, says="ENODATA", optional=True),
    "read_counts_of_physical_pages": refused_by(IDS, says="EACCES"),
    "read_the_map_of_memory": refused_by(IDS, says="EACCES"),
    # /proc and /sys.
    "read_interrupts": refused_by(MASKS, says="ENODATA"),
    "read_the_command_line_of_the_kernel": refused_by(MASKS, says="ENODATA"),
    "read_partitions": refused_by(MASKS, says="ENODATA"),
    "read_counters_of_memory": refused_by(MASKS, says="ENODATA"),
    "read_counters_of_filesystems": refused_by(MASKS, says="ENOENT", optional=True),
    "list_filesystems_of_others": refused_by(MASKS, says="words", optional=True),
    "read_counters_of_heat": refused_by(MASKS, says="words", optional=True),
    "write_a_setting_of_the_network": refused_by(MASKS, CAPABILITIES, says="EACCES EROFS"),
    "write_core_pattern": refused_by(MASKS, IDS, says="EACCES EROFS"),
    "write_modprobe_path": refused_by(MASKS, IDS, says="EACCES EROFS"),
    "write_sysrq": refused_by(MASKS, IDS, says="EACCES EROFS"),
    "write_binfmt_misc": refused_by(SECCOMP, CAPABILITIES),
    "write_uevent_helper": refused_by(MASKS, IDS, says="EACCES EROFS"),
    "write_to_sys": refused_by(MASKS, IDS, says="words"),
    "write_release_agent": refused_by(*NAMESPACES),
    "write_to_a_control_group": refused_by(*ALL_RIGHTS),
    "protect_oneself_from_the_oom_killer": refused_by(CAPABILITIES, IDS, says="EACCES", optional=True),
    # Namespaces and mounts.
    "make_a_user_namespace": refused_by(SECCOMP, says="ENOSYS EPERM"),
    "make_a_user_namespace_by_clone3": refused_by(SECCOMP, says="ENOSYS"),
    "make_a_mount_namespace": refused_by(SECCOMP, CAPABILITIES, says="ENOSYS EPERM"),
    "mount_tmpfs": refused_by(SECCOMP, CAPABILITIES),
    "mount_by_the_new_calls": refused_by(SECCOMP, CAPABILITIES),
    "clone_a_mount": refused_by(SECCOMP, CAPABILITIES),
    "change_attributes_of_a_mount": refused_by(SECCOMP, CAPABILITIES),
    "remount_proc_sys_writable": refused_by(SECCOMP, CAPABILITIES),
    "make_a_mount_shared": refused_by(SECCOMP, CAPABILITIES),
    "unmount_a_mask": refused_by(SECCOMP, CAPABILITIES),
    "change_the_root": refused_by(SECCOMP, CAPABILITIES),
    "open_a_file_by_handle": refused_by(*ALL_RIGHTS),
    # The kernel.
    "load_a_module": refused_by(*ALL_RIGHTS, optional=True),
    "load_a_kernel": refused_by(*ALL_RIGHTS, optional=True),
    "reboot": refused_by(SECCOMP, CAPABILITIES),
    "swap_on_a_file": refused_by(*ALL_RIGHTS),
    "set_the_clock": refused_by(*ALL_RIGHTS),
    "set_the_name_of_the_host": refused_by(SECCOMP, CAPABILITIES),
    "load_a_bpf_program": refused_by(*ALL_RIGHTS),
    "count_performance_events_of_the_machine": refused_by(*ALL_RIGHTS),
    "use_io_uring": refused_by(SECCOMP),
    "handle_page_faults": refused_by(SECCOMP),
    "add_a_key": refused_by(SECCOMP),
    "list_keys_of_others": refused_by(MASKS, IDS, says="ENOENT"),
    "read_keys_of_others": refused_by(SECCOMP),
    "make_an_unusual_socket": refused_by(SECCOMP, says="EAFNOSUPPORT"),
    "make_a_vsock": refused_by(SECCOMP, says="EAFNOSUPPORT"),
    "make_a_raw_socket": refused_by(RAW_SOCKETS),
    "make_a_socket_for_frames": refused_by(RAW_SOCKETS),
    "use_an_unusual_protocol": refused_by(RAW_SOCKETS, says="EPROTONOSUPPORT ESOCKTNOSUPPORT", optional=True),
    # The network.
    "change_the_own_address": refused_by(CAPABILITIES, says="words"),
    "change_the_own_hardware_address": refused_by(CAPABILITIES, says="words"),
    "load_firewall_rules": refused_by(CAPABILITIES),
    "reach_another_cluster": refused_by(FIREWALL, says="ETIMEDOUT words"),
    "reach_the_gateway": refused_by(FIREWALL, says="ETIMEDOUT words"),
    "reach_every_address_of_the_host": refused_by(FIREWALL, says="words"),
    "reach_the_metadata_service": refused_by(FIREWALL, says="ETIMEDOUT words"),
    "reach_a_private_network": refused_by(FIREWALL, says="ETIMEDOUT words"),
    "hear_another_cluster": refused_by(*NAMESPACES, says="words", raw=True),
    "answer_for_the_gateway": refused_by(ADDRESSES, says="words", raw=True),
    "send_with_another_hardware_address": refused_by(ADDRESSES, says="words", raw=True),
    "send_with_another_address": refused_by(FIREWALL, ADDRESSES, says="words", raw=True),
    "send_into_a_vlan": refused_by(ADDRESSES, says="words", raw=True),
    "announce_a_router": refused_by(FIREWALL, ADDRESSES, says="words", raw=True),
    "answer_as_dhcp": refused_by(ADDRESSES, says="words", raw=True),
    "send_an_unknown_protocol": refused_by(ADDRESSES, says="words", raw=True),
    # Exhaustion of resources.
    "too_many_processes": refused_by(LIMITS, says="words EAGAIN"),
    "too_many_pipes": refused_by(LIMITS, says="words killed ENOMEM"),
    "too_much_memory": refused_by(LIMITS, says="killed"),
    "too_much_in_sockets": refused_by(LIMITS, says="words killed ENOMEM"),
    "take_memory_by_rings_of_frames": refused_by(RAW_SOCKETS),
    "too_much_in_dev_shm": refused_by(LIMITS, says="ENOSPC killed"),
    "too_much_in_run": refused_by(LIMITS, says="ENOSPC killed"),
    "too_many_terminals": refused_by(LIMITS, says="ENOSPC"),
    "too_much_on_the_disk": refused_by("disk-limit", says="ENOSPC"),
    "more_inodes_than_the_disk_has_room_for": refused_by("disk-limit", says="words"),
    "more_processor_time": refused_by(LIMITS, says="words"),
    "use_up_file_watchers": refused_by(OWN_COUNTS, says="words"),
    "use_up_pending_signals": refused_by(OWN_COUNTS, says="words"),
    "use_up_message_queues": refused_by(OWN_COUNTS, says="words"),
}

BRIDGE = tuple(name for name, attempt in ATTEMPTS.items() if ADDRESSES in attempt.protections)
"""Attempts that send frames to the second node of the cluster, and succeed when the frames arrive."""

COUNTS = tuple(name for name, attempt in ATTEMPTS.items() if OWN_COUNTS in attempt.protections)
"""Attempts that use up what the kernel counts for a user, and succeed when root of the host or another instance then
has none left."""

PROOFS = sorted(ATTEMPTS, key=lambda name: (len(ATTEMPTS[name].proof), ATTEMPTS[name].proof))
"""The attempts, ordered so that those that need the same engine follow each other."""


def run_on_host(names, targets: dict) -> dict[str, str]:
    """The outcomes of attempts by root of the host, in separate mount namespaces, because some attempts mount
    something."""
    order = json.dumps({"names": list(names), "targets": targets})
    script = SOURCE + f"\nmain({order!r})\n"
    line = ["unshare", "--mount", "--uts", "--ipc", "--propagation", "private", "python3", "-"]
    ran = subprocess.run(line, input=script, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran
    return json.loads(ran.stdout.splitlines()[-1])


def run_inside(cloud, names, targets: dict, instance="inside") -> dict[str, str]:
    """Runs attempts as root in an instance of the cluster `inside`, all in one session. Returns for each `able` or
    the refusal."""
    order = json.dumps({"names": [name for name in names if name not in BRIDGE + COUNTS], "targets": targets})
    script = SOURCE + f"\nmain({order!r})\n"
    ran = cloud.ssh(instance, "sudo python3 -", answer=script, seconds=600, code=None)
    assert ran.code == 0 and ran.out.strip(), ran
    outcomes = json.loads(ran.out.splitlines()[-1])
    if on_the_bridge := [name for name in names if name in BRIDGE]:
        outcomes |= send_frames(cloud, on_the_bridge, targets)
    if counts := [name for name in names if name in COUNTS]:
        outcomes |= use_up_counts(cloud, counts, instance)
    return outcomes


def use_up_counts(cloud, names, instance: str) -> dict[str, str]:
    """An ordinary user in the instance takes all that the kernel gives; meanwhile root of the host and a user of
    another cluster each try to get one."""
    own = SOURCE
    probe = own + f"\nprobe_counts({list(names)!r})\n"

    def lacking() -> dict[str, list[str]]:
        """Who gets none, and why."""
        on_host = subprocess.run(["python3", "-"], input=probe, capture_output=True, text=True, timeout=60, check=True).stdout
        tried = {"root of the host": json.loads(on_host), "another cluster": json.loads(cloud.ssh("neighbour", "python3 -", answer=probe).out)}
        return {name: [f"{who}: {said[name]}" for who, said in tried.items() if said[name]] for name in names}

    assert not any(lacking().values()), "there are none to begin with"
    taking = own + f"\ntake_counts({list(names)!r})\n"
    program = f'import sys; exec(sys.stdin.read({len(taking)}))'
    line = ["ssh", *cloud.options(), f"{instance}@127.0.0.1", f"python3 -c '{program}'"]
    holder = subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        holder.stdin.write(taking)
        holder.stdin.flush()
        assert holder.stdout.readline() == "all are taken\n"
        found = lacking()
        holder.stdin.close()
        assert holder.wait(60) == 0
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    return {name: "able" if found[name] else "refused: words: others still get theirs" for name in names}


def send_frames(cloud, names, targets: dict) -> dict[str, str]:
    """Sends frames that the second node must not receive. The last frame is valid and arrives: all others have
    arrived by then or never will."""
    second = targets["second"]
    line = ["ssh", *cloud.options(), f"{second['name']}@127.0.0.1", "sudo python3 -"]
    listener = subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        listener.stdin.write(SOURCE + "\nlisten_for_frames()\n")
        listener.stdin.close()
        assert listener.stdout.readline() == "listening\n"
        order = json.dumps({"names": list(names), "targets": targets})
        cloud.ssh("inside", "sudo python3 -", answer=SOURCE + f"\nsend_frames({order!r})\n")
        seen = json.loads(listener.stdout.readline())
        assert listener.wait(60) == 0
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()
    return {name: "able" if name in seen else "refused: words: it did not arrive" for name in names}
