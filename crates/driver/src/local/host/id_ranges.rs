//! The user and group ids of the machine that instances use: each has a range of its own, so that what escapes from one
//! could not touch the files of another.

use std::collections::BTreeSet;

/// How many ids an instance has.
pub(in crate::local) const IDS: u32 = 65_536;

/// The first id that is given out: far above what distributions give to people and to their containers.
const FIRST: u32 = 0x4000_0000;

/// The range for unpacking the layers of images: no instance ever has it.
pub(in crate::local) const UNPACKING: u32 = FIRST - IDS;

/// How many ranges there are.
const RANGES: u32 = (0xf000_0000 - FIRST) / IDS;

/// A free range: its first id. Installations begin at different paths, so that two engines on a machine, which know nothing
/// of each other, rarely use the same.
pub(in crate::local) fn choose_id_range(installation: &str, taken: &BTreeSet<u32>) -> Option<u32> {
    let hash = blake3::hash(installation.as_bytes());
    let bytes = hash.as_bytes();
    let begin = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) % RANGES;
    (0..RANGES).map(|step| FIRST + (begin + step) % RANGES * IDS).find(|base| !taken.contains(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_end() {
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
