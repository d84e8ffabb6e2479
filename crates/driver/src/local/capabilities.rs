//! The capabilities of `root` inside an instance, and those that are stored with a program.

use rustix::thread::CapabilitySet;

/// The extended attribute with the capabilities that a program gets when it is executed.
pub(super) const ATTRIBUTE: &str = "security.capability";

/// The capabilities of `root` inside. In a user namespace they reach only the instance's own objects. They do not
/// include creating devices, mounting, raw sockets, and access to the kernel.
pub(super) const INSIDE: CapabilitySet = CapabilitySet::AUDIT_WRITE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// The flag in an attribute that makes the capabilities effective at once.
const EFFECTIVE: u32 = 1;

/// Returns whether a program with this attribute cannot be executed inside: the kernel refuses to execute a program
/// that would miss an effective capability. Such a program, mostly `ping`, has to lose the attribute; then it starts
/// without privileges.
pub(super) fn prevents_execution(attribute: &[u8]) -> bool {
    let word =
        |at: usize| attribute.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    // The flags, then the permitted and the inheritable capabilities, lower half first.
    let permitted = u64::from(word(4)) | u64::from(word(12)) << 32;
    word(0) & EFFECTIVE != 0 && permitted & !INSIDE.bits() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_missing_capabilities_are_recognised() {
        let attribute = |flags: u32, low: u32, high: u32| {
            [0x0200_0000 | flags, low, 0, high, 0].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>()
        };
        assert!(prevents_execution(&attribute(1, 1 << 13, 0)), "ping of Debian");
        assert!(prevents_execution(&attribute(1, 1 << 10, 1 << 6)), "only a part of it is missing");
        assert!(!prevents_execution(&attribute(0, 1 << 13, 0)), "the program raises it itself, if it can");
        assert!(!prevents_execution(&attribute(1, 1 << 10, 0)), "it may listen on low ports");
        assert!(!prevents_execution(&[]) && !prevents_execution(&[1, 0, 0]));
    }
}
