//! The system calls that an instance may make.
//!
//! Listed calls are allowed; calls that are refused by name fail with "not permitted", which people understand; all
//! others do not exist for the instance, which is how programs detect that a kernel lacks a newer call.

use serde_json::{Value, json};

/// `ENOSYS`: the kernel has no such call.
const NO_SUCH_CALL: u32 = 38;

/// `EPERM`: not permitted.
const NOT_PERMITTED: u32 = 1;

/// `EAFNOSUPPORT`: no such kind of socket.
const NO_SUCH_SOCKETS: u32 = 97;

/// The flags of `clone` and `unshare` that create namespaces. An instance creates none: in its own namespace a process
/// would regain capabilities that it was denied.
const NEW_NAMESPACES: u64 = 0x7E02_0000;

/// The socket families that programs use: local, IPv4, IPv6, netlink, and packet sockets. The others are rarely needed
/// and have often been used to attack the kernel, which may even load a module for them.
const FAMILIES: &[u64] = &[LOCAL, 2, 10, 16, 17];

/// The family of local sockets, the only one for socket pairs.
const LOCAL: u64 = 1;

/// `SOL_PACKET`, and its options `PACKET_RX_RING` and `PACKET_TX_RING`. Their memory is not accounted, so a few calls
/// could use up the host's memory. There are no options above the last one yet.
const FRAMES: u64 = 263;
const RINGS: [u64; 2] = [5, 13];
const LAST_OPTION: u64 = 31;

/// Option levels above `SOL_PACKET` that the allowed families use: netlink, TLS, and variants of TCP. They are listed,
/// because the kernel compares only the lower half of the number: "greater" would accept any value in the upper half.
const HIGHER_LEVELS: &[u64] = &[270, 282, 284, 286];

/// The personalities that programs use: Linux, 32 bit, no address randomisation, and querying the current one.
const PERSONALITIES: &[u64] = &[0x0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

const FILES: &str = "\
    access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 \
    fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock \
    fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat getcwd getdents getdents64 getxattr getxattrat \
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch fanotify_mark ioctl lchown lgetxattr link linkat \
    listxattr listxattrat llistxattr lremovexattr lseek lsetxattr lstat memfd_create memfd_secret mkdir mkdirat \
    mknod mknodat name_to_handle_at newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 \
    read readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile \
    setxattr setxattrat splice stat statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask \
    unlink unlinkat utime utimensat utimes vmsplice write writev cachestat";

const WAITING: &str = "\
    epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 io_cancel io_destroy \
    io_getevents io_pgetevents io_setup io_submit pipe pipe2 poll ppoll pselect6 select signalfd signalfd4";

const PROCESSES: &str = "\
    arch_prctl capget capset chroot execve execveat exit exit_group fork getegid geteuid getgid getgroups getpgid \
    getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get \
    ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self pidfd_getfd pidfd_open \
    pidfd_send_signal prctl prlimit64 process_madvise process_mrelease process_vm_readv process_vm_writev ptrace \
    rseq sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam \
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler \
    sched_yield seccomp set_robust_list get_robust_list set_thread_area get_thread_area set_tid_address setfsgid \
    setfsuid setgid setgroups setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setuid \
    tgkill tkill times vfork wait4 waitid";

const SIGNALS_AND_TIME: &str = "\
    adjtimex alarm clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep pause \
    restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend \
    rt_sigtimedwait rt_tgsigqueueinfo setitimer sigaltstack time timer_create timer_delete timer_getoverrun \
    timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime";

const MEMORY: &str = "\
    brk futex futex_requeue futex_wait futex_waitv futex_wake get_mempolicy madvise map_shadow_stack mbind \
    membarrier mincore mlock mlock2 mlockall mmap move_pages mprotect mq_getsetattr mq_notify mq_open \
    mq_timedreceive mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap \
    pkey_alloc pkey_free pkey_mprotect remap_file_pages semctl semget semop semtimedop set_mempolicy \
    set_mempolicy_home_node shmat shmctl shmdt shmget";

const NETWORK: &str = "\
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg \
    sendto shutdown";

const SYSTEM: &str = "\
    getcpu getrandom sysinfo uname";

const REFUSED: &str = "\
    acct add_key bpf clock_settime delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick \
    init_module io_uring_enter io_uring_register io_uring_setup iopl ioperm kcmp kexec_file_load kexec_load keyctl \
    lookup_dcookie mount mount_setattr move_mount open_by_handle_at open_tree perf_event_open pivot_root quotactl \
    quotactl_fd reboot request_key setdomainname sethostname setns settimeofday swapoff swapon syslog umount2 \
    userfaultfd vhangup";

/// Calls that are allowed with any arguments.
const ALLOWED: &[&str] = &[FILES, WAITING, PROCESSES, SIGNALS_AND_TIME, MEMORY, NETWORK, SYSTEM];

/// Returns the profile in the form of the OCI runtime specification.
pub(super) fn seccomp_profile() -> Value {
    let allowed: Vec<_> = ALLOWED.iter().flat_map(|group| group.split_whitespace()).collect();
    let refused: Vec<_> = REFUSED.split_whitespace().collect();
    let mut rules = vec![
        json!({ "names": allowed, "action": "SCMP_ACT_ALLOW" }),
        json!({ "names": refused, "action": "SCMP_ACT_ERRNO", "errnoRet": NOT_PERMITTED }),
        json!({
            "names": ["clone", "unshare"],
            "action": "SCMP_ACT_ALLOW",
            // The specification has the mask first; libcontainer 0.7 uses the second value as the mask. A test from
            // inside an instance fails should that change.
            "args": [{ "index": 0, "value": 0, "valueTwo": NEW_NAMESPACES, "op": "SCMP_CMP_MASKED_EQ" }],
        }),
    ];
    rules.extend(socket_family_rules("socket", FAMILIES));
    rules.extend(socket_family_rules("socketpair", &[LOCAL]));
    rules.extend(socket_option_rules());
    rules.extend(PERSONALITIES.iter().map(|personality| {
        json!({
            "names": ["personality"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{ "index": 0, "value": personality, "op": "SCMP_CMP_EQ" }],
        })
    }));
    json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": NO_SUCH_CALL, "syscalls": rules })
}

/// Returns the rules of a call that creates sockets, for these families. A rule compares an argument once, so every
/// other family is refused individually.
fn socket_family_rules(call: &str, families: &[u64]) -> Vec<Value> {
    let refused = |argument: Value| json!({ "names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": NO_SUCH_SOCKETS, "args": [argument] });
    let last = families.iter().copied().max().unwrap_or_default();
    let mut rules = vec![refused(json!({ "index": 0, "value": last, "op": "SCMP_CMP_GT" }))];
    for family in 0..=last {
        let argument = json!({ "index": 0, "value": family, "op": "SCMP_CMP_EQ" });
        rules.push(if families.contains(&family) {
            json!({ "names": [call], "action": "SCMP_ACT_ALLOW", "args": [argument] })
        } else {
            refused(argument)
        });
    }
    rules
}

/// Returns the rules that allow `setsockopt` for everything except packet rings.
fn socket_option_rules() -> Vec<Value> {
    let rule = |action: &str, arguments: Value| json!({ "names": ["setsockopt"], "action": action, "args": arguments });
    let level = |op: &str, value: u64| json!({ "index": 1, "value": value, "op": op });
    let option = |op: &str, value: u64| json!({ "index": 2, "value": value, "op": op });
    let allowed = |option: Value| rule("SCMP_ACT_ALLOW", json!([level("SCMP_CMP_EQ", FRAMES), option]));
    let mut rules = vec![rule("SCMP_ACT_ALLOW", json!([level("SCMP_CMP_LT", FRAMES)]))];
    rules.extend(HIGHER_LEVELS.iter().map(|higher| rule("SCMP_ACT_ALLOW", json!([level("SCMP_CMP_EQ", *higher)]))));
    let others = (0..=LAST_OPTION).filter(|other| !RINGS.contains(other));
    rules.extend(others.map(|other| allowed(option("SCMP_CMP_EQ", other))));
    rules.extend(RINGS.map(|ring| {
        let mut refused = rule("SCMP_ACT_ERRNO", json!([level("SCMP_CMP_EQ", FRAMES), option("SCMP_CMP_EQ", ring)]));
        refused["errnoRet"] = NOT_PERMITTED.into();
        refused
    }));
    rules
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_is_listed_once() {
        let mut seen = BTreeSet::new();
        for name in ALLOWED.iter().flat_map(|group| group.split_whitespace()).chain(REFUSED.split_whitespace()) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
    }
}
