"""The attempts of root inside an instance against everything around it, and what stands in their way.

Each attempt is a function in `isolation_attempts.py`, which runs inside. Here is the table: its name, and the protections that
refuse it. An attempt that names protections succeeds in an engine without exactly those, which a test shows; what the kernel
itself refuses to anybody in a user namespace, or what is not there at all, names none.
"""

import json
from pathlib import Path

ATTEMPTS_FILE = Path(__file__).with_name("isolation_attempts.py")
PROTECTIONS = (
    "seccomp", "capabilities", "user-namespace", "masks", "devices", "cgroup-limits", "firewall", "addresses", "disk-limit",
)  # fmt: skip

SECCOMP, CAPABILITIES, MASKS, LIMITS, FIREWALL = "seccomp", "capabilities", "masks", "cgroup-limits", "firewall"
ADDRESSES, IDS = "addresses", "user-namespace"

ATTEMPTS: dict[str, tuple[str, ...]] = {
    # Other processes.
    "signal_every_process": (),
    "trace_a_process_of_the_host": (),
    "read_memory_of_a_process_of_the_host": (),
    "enter_namespaces_of_pid_1_of_the_host": (),
    # Devices and disks.
    "open_fuse": ("devices",),
    "open_host_devices": (),
    "make_a_disk_device": (),
    "make_a_memory_device": (),
    "attach_a_loop_device": (),
    "make_a_tunnel": (),
    "read_kernel_messages": (),
    "read_kcore": (),
    "read_counts_of_physical_pages": (IDS,),
    "read_the_map_of_memory": (IDS,),
    # /proc and /sys.
    "read_interrupts": (MASKS,),
    "write_a_setting_of_the_network": (MASKS, CAPABILITIES),
    "write_core_pattern": (MASKS, IDS),
    "write_modprobe_path": (MASKS, IDS),
    "write_sysrq": (MASKS, IDS),
    "write_binfmt_misc": (),
    "write_uevent_helper": (),
    "write_to_sys": (),
    "write_release_agent": (),
    "write_to_a_control_group": (),
    "protect_oneself_from_the_oom_killer": (),
    # Namespaces and mounts.
    "make_a_user_namespace": (SECCOMP,),
    "make_a_user_namespace_by_clone3": (SECCOMP,),
    "make_a_mount_namespace": (SECCOMP, CAPABILITIES),
    "mount_tmpfs": (SECCOMP, CAPABILITIES),
    "mount_by_the_new_calls": (SECCOMP, CAPABILITIES),
    "clone_a_mount": (SECCOMP, CAPABILITIES),
    "change_attributes_of_a_mount": (SECCOMP, CAPABILITIES),
    "remount_proc_sys_writable": (),
    "make_a_mount_shared": (SECCOMP, CAPABILITIES),
    "unmount_a_mask": (),
    "change_the_root": (),
    "open_a_file_by_handle": (),
    # The kernel.
    "load_a_module": (),
    "load_a_kernel": (),
    "reboot": (),
    "swap_on_a_file": (),
    "set_the_clock": (),
    "set_the_name_of_the_host": (SECCOMP, CAPABILITIES),
    "load_a_bpf_program": (),
    "count_performance_events_of_the_machine": (),
    "use_io_uring": (SECCOMP,),
    "handle_page_faults": (SECCOMP,),
    "add_a_key": (SECCOMP,),
    "list_keys_of_others": (),
    "read_keys_of_others": (SECCOMP,),
    "use_kernel_cryptography": (),
    "make_a_vsock": (SECCOMP,),
    # The network.
    "change_the_own_address": (CAPABILITIES,),
    "change_the_own_hardware_address": (CAPABILITIES,),
    "load_firewall_rules": (CAPABILITIES,),
    "reach_another_cluster": (FIREWALL,),
    "reach_the_gateway": (FIREWALL,),
    "reach_every_address_of_the_host": (FIREWALL,),
    "reach_the_metadata_service": (),
    "hear_another_cluster": (),
    "answer_for_the_gateway": (ADDRESSES,),
    "send_with_another_hardware_address": (ADDRESSES,),
    "send_with_another_address": (FIREWALL, ADDRESSES),
    "send_into_a_vlan": (ADDRESSES,),
    "announce_a_router": (FIREWALL, ADDRESSES),
    "answer_as_dhcp": (ADDRESSES,),
    "send_an_unknown_protocol": (ADDRESSES,),
    # Too much of everything.
    "too_many_processes": (LIMITS,),
    "too_much_memory": (LIMITS,),
    "too_much_in_dev_shm": (LIMITS,),
    "too_much_in_run": (LIMITS,),
    "too_many_open_files": (),
    "too_much_on_the_disk": ("disk-limit",),
    "more_inodes_than_the_disk_has_room_for": ("disk-limit",),
    "more_processor_time": (),
}

BRIDGE = tuple(name for name, walls in ATTEMPTS.items() if ADDRESSES in walls)
"""What is sent to the second node of the cluster, and succeeded when it came there."""

SETS = sorted({walls for walls in ATTEMPTS.values() if walls}, key=lambda walls: (len(walls), walls))
"""What engines are started without."""


def run(cloud, names, targets: dict, machine="inside") -> dict[str, str]:
    """Runs attempts in an instance of the cluster `inside` as root, all in one session. Says for each `able`, or why not."""
    order = json.dumps({"names": [name for name in names if name not in BRIDGE], "targets": targets})
    script = ATTEMPTS_FILE.read_text() + f"\nmain({order!r})\n"
    ran = cloud.ssh(machine, "sudo python3 -", answer=script, seconds=120, code=None)
    assert ran.code == 0 and ran.out.strip(), ran
    outcomes = json.loads(ran.out.splitlines()[-1])
    if on_the_bridge := [name for name in names if name in BRIDGE]:
        outcomes |= send(cloud, on_the_bridge, targets)
    return outcomes


def send(cloud, names, targets: dict) -> dict[str, str]:
    """Frames that the second node must not see. The last one is honest and comes through: by then the others have come or will not."""
    import subprocess

    from machines import ENVIRONMENT

    second = targets["second"]
    line = ["ssh", *cloud.options(), f"{second['name']}@127.0.0.1", "sudo python3 -"]
    listener = subprocess.Popen(line, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        listener.stdin.write(ATTEMPTS_FILE.read_text() + "\nlisten_for_frames()\n")
        listener.stdin.close()
        assert listener.stdout.readline() == "listening\n"
        order = json.dumps({"names": list(names), "targets": targets})
        cloud.ssh("inside", "sudo python3 -", answer=ATTEMPTS_FILE.read_text() + f"\nsend_frames({order!r})\n", seconds=60)
        seen = json.loads(listener.stdout.readline())
        assert listener.wait(60) == 0
    finally:
        listener.kill()
        listener.wait()
        listener.stdout.close()
    return {name: "able" if name in seen else "refused: it did not arrive" for name in names}
