//! The user and group ids of the host that instances use. Each instance has its own range, so that a process that
//! escapes from one cannot touch the files of another.

use std::collections::BTreeSet;

/// How many ids an instance has.
pub(in crate::local) const IDS: u32 = 65_536;

/// The first id of the first range: far above what distributions assign to users and to their containers.
const FIRST: u32 = 0x4000_0000;

/// The range for unpacking the layers of images. No instance ever gets it.
pub(in crate::local) const UNPACKING: u32 = FIRST - IDS;

/// How many ranges there are.
const RANGES: u32 = (0xf000_0000 - FIRST) / IDS;

/// Returns the first id of a free range. Installations start at different offsets, so that two engines on a host, which
/// do not know of each other, rarely use the same range.
pub(in crate::local) fn choose_id_range(installation: &str, taken: &BTreeSet<u32>) -> Option<u32> {
    let hash = blake3::hash(installation.as_bytes());
    let bytes = hash.as_bytes();
    let begin = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) % RANGES;
    (0..RANGES).map(|step| FIRST + (begin + step) % RANGES * IDS).find(|base| !taken.contains(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranges do not overlap, and there are only so many of them.
    #[test]
    fn id_ranges_are_disjoint_and_finite() {
        let mut taken = BTreeSet::new();
        for _ in 0..500 {
            let base = choose_id_range("abcdef", &taken).unwrap();
            assert!(base >= FIRST && base.checked_add(IDS).is_some() && base.is_multiple_of(IDS), "{base}");
            assert!(taken.insert(base));
        }
        let all = (0..RANGES).map(|range| FIRST + range * IDS).collect();
        assert_eq!(choose_id_range("abcdef", &all), None);
    }
}
