//! The comparison of two threads (`kcmp`), which has no safe wrapper in the libraries.
#![allow(unsafe_code, reason = "kcmp has no safe wrapper")]

/// What threads of one process usually share, by the kernel's number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SharedResource {
    /// The table of open files.
    Files = 2,
    /// The working directory and the root.
    Directories = 3,
}

/// Returns whether two threads share a resource. Two that cannot be compared do not, so that both are inspected.
pub(super) fn threads_share(what: SharedResource, one: u32, other: u32) -> bool {
    let (one, other) = (libc::c_long::from(one.cast_signed()), libc::c_long::from(other.cast_signed()));
    let none: libc::c_long = 0;
    // SAFETY: the call takes five numbers, ignores the last two here, and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, what as libc::c_long, none, none) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads share files and directories; other processes do not.
    #[test]
    fn threads_share_files_and_directories() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert!(
            threads_share(SharedResource::Files, std::process::id(), own)
                && threads_share(SharedResource::Directories, std::process::id(), own)
        );
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let shared =
            [SharedResource::Files, SharedResource::Directories].map(|what| threads_share(what, own, other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(shared, [false, false]);
    }
}
