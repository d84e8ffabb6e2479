//! The system calls that an instance may make.
//!
//! Listed calls are allowed; calls that are refused by name fail with "not permitted", which people understand; all
//! others do not exist for the instance, which is how programs detect that a kernel lacks a newer call.

use serde_json::{Value, json};

/// `ENOSYS`: the kernel has no such call.
const NO_SUCH_CALL: u32 = 38;

/// `EPERM`: not permitted.
const NOT_PERMITTED: u32 = 1;

/// `EAFNOSUPPORT`: no such family of sockets.
const NO_SUCH_SOCKETS: u32 = 97;

/// `ESOCKTNOSUPPORT` and `EPROTONOSUPPORT`: the family has no such type or protocol.
const NO_SUCH_TYPE: u32 = 94;
const NO_SUCH_PROTOCOL: u32 = 93;

/// The flags of `clone` and `unshare` that create namespaces. An instance creates none: in its own namespace a process
/// would regain capabilities that it was denied.
const NEW_NAMESPACES: u64 = 0x7E02_0000;

/// The socket families that programs use: local, IPv4, IPv6 and netlink. The others are rarely needed and have often
/// been used to attack the kernel, which may even load a module for them. Packet sockets are refused by name.
const FAMILIES: &[u64] = &[LOCAL, IPV4, IPV6, 16];

/// The family of local sockets, the only one for socket pairs.
const LOCAL: u64 = 1;
const IPV4: u64 = 2;
const IPV6: u64 = 10;
const PACKETS: u64 = 17;

/// The types of sockets, in the lowest bits of the second argument; the higher bits are flags.
const TYPES: u64 = 0xf;
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
const RAW: u64 = 3;

/// The protocols of IP that programs use, by family and type: TCP, UDP, and the echoes of `ping`; 0 is the usual one.
/// Others, such as SCTP, DCCP and MPTCP, have often been used to attack the kernel; a program that prefers one of them
/// uses TCP when it is told that the protocol does not exist.
const PROTOCOLS: &[(u64, u64, &[u64])] =
    &[(IPV4, STREAM, &[0, 6]), (IPV4, DATAGRAM, &[0, 1, 17]), (IPV6, STREAM, &[0, 6]), (IPV6, DATAGRAM, &[0, 17, 58])];

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
    sendto setsockopt shutdown";

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

/// Returns the profile in the form of the OCI runtime specification. Only a test does not filter raw sockets.
pub(super) fn seccomp_profile(filters_raw_sockets: bool) -> Value {
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
    rules.extend(socket_rules(filters_raw_sockets));
    rules.extend(family_rules("socketpair", &[LOCAL], &[]));
    rules.extend(PERSONALITIES.iter().map(|personality| {
        json!({
            "names": ["personality"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{ "index": 0, "value": personality, "op": "SCMP_CMP_EQ" }],
        })
    }));
    json!({ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": NO_SUCH_CALL, "syscalls": rules })
}

/// Returns the rules of `socket`.
fn socket_rules(filters_raw_sockets: bool) -> Vec<Value> {
    if !filters_raw_sockets {
        return family_rules("socket", &[FAMILIES, &[PACKETS]].concat(), &[]);
    }
    // A raw socket fails as it does for users without privileges: programs such as `ping` then use another one.
    let mut rules = vec![socket_rule("socket", Some(NOT_PERMITTED), vec![is(0, PACKETS)])];
    rules.extend(family_rules("socket", FAMILIES, &[IPV4, IPV6, PACKETS]));
    for family in [IPV4, IPV6] {
        for kind in 0..=TYPES {
            let why = if kind == RAW { NOT_PERMITTED } else { NO_SUCH_TYPE };
            match PROTOCOLS.iter().find(|(of, each, _)| (*of, *each) == (family, kind)) {
                Some((_, _, protocols)) => rules.extend(protocol_rules(family, kind, protocols)),
                None => rules.push(socket_rule("socket", Some(why), vec![is(0, family), is_type(kind)])),
            }
        }
    }
    rules
}

/// Returns the rules of a call that creates sockets, for these families, without those that have rules of their own. A
/// rule compares an argument once, and rules must not overlap, so every other family is refused individually.
fn family_rules(call: &str, families: &[u64], special: &[u64]) -> Vec<Value> {
    let last = families.iter().chain(special).copied().max().unwrap_or_default();
    let mut rules = vec![socket_rule(call, Some(NO_SUCH_SOCKETS), vec![is_above(0, last)])];
    for family in (0..=last).filter(|family| !special.contains(family)) {
        let refused = (!families.contains(&family)).then_some(NO_SUCH_SOCKETS);
        rules.push(socket_rule(call, refused, vec![is(0, family)]));
    }
    rules
}

/// Returns the rules for the protocols of a family and type.
fn protocol_rules(family: u64, kind: u64, protocols: &[u64]) -> Vec<Value> {
    let rule = |refused, protocol| socket_rule("socket", refused, vec![is(0, family), is_type(kind), protocol]);
    let last = protocols.iter().copied().max().unwrap_or_default();
    let mut rules = vec![rule(Some(NO_SUCH_PROTOCOL), is_above(2, last))];
    for protocol in 0..=last {
        let refused = (!protocols.contains(&protocol)).then_some(NO_SUCH_PROTOCOL);
        rules.push(rule(refused, is(2, protocol)));
    }
    rules
}

/// Returns a rule that allows a call with these arguments, or refuses it with an error.
fn socket_rule(call: &str, refused: Option<u32>, arguments: Vec<Value>) -> Value {
    match refused {
        None => json!({ "names": [call], "action": "SCMP_ACT_ALLOW", "args": arguments }),
        Some(error) => {
            json!({ "names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": error, "args": arguments })
        }
    }
}

fn is(index: u8, value: u64) -> Value {
    json!({ "index": index, "value": value, "op": "SCMP_CMP_EQ" })
}

fn is_above(index: u8, value: u64) -> Value {
    json!({ "index": index, "value": value, "op": "SCMP_CMP_GT" })
}

/// Compares the type of a socket without its flags; the order of the values is that of libcontainer, see above.
fn is_type(kind: u64) -> Value {
    json!({ "index": 1, "value": kind, "valueTwo": TYPES, "op": "SCMP_CMP_MASKED_EQ" })
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
