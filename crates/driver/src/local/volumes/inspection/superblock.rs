//! The superblock of an XFS: enough to identify the filesystem, and to know its size and usage.
//!
//! It is read from the file of a volume and never written. Its counts are exact while the volume is not mounted; for a
//! mounted volume the kernel knows better.

use std::io::{self, Read};

use super::LiveUsage;

/// How much of the superblock is read.
const LENGTH: usize = 512;

const MAGIC: &[u8] = b"XFSB";

/// The fields of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::local::volumes) struct Superblock {
    /// The label that was given to the filesystem when it was created.
    pub(in crate::local::volumes) label: String,
    /// The size of the filesystem, which may be smaller than that of its file.
    pub(in crate::local::volumes) size_bytes: u64,
    /// The size of the journal.
    pub(in crate::local::volumes) journal_bytes: u64,
    /// The size of an allocation group; the last one may be smaller.
    pub(in crate::local::volumes) part_bytes: u64,
    /// The used bytes, without the journal.
    pub(in crate::local::volumes) used_bytes: u64,
}

impl Superblock {
    /// Reads it from the beginning of a file; `None` when there is no valid superblock.
    pub(in crate::local::volumes) fn read(mut file: impl Read) -> io::Result<Option<Self>> {
        let mut sector = [0; LENGTH];
        match file.read_exact(&mut sector) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Self::parse(&sector)),
        }
    }

    /// How many bytes of a file of this size the filesystem does not use. A mounted filesystem may have grown without
    /// the superblock on disk showing it yet.
    pub(in crate::local::volumes) fn unused_tail_bytes(&self, file_bytes: u64, live: Option<LiveUsage>) -> u64 {
        let filesystem = live.map_or(self.size_bytes, |live| live.size_bytes.saturating_add(self.journal_bytes));
        file_bytes.saturating_sub(filesystem)
    }

    fn parse(sector: &[u8; LENGTH]) -> Option<Self> {
        let block_bytes = read_be::<4>(sector, 4);
        let (blocks, free) = (read_be::<8>(sector, 8), read_be::<8>(sector, 144));
        let journal = read_be::<4>(sector, 96);
        let label = sector[108..120].split(|byte| *byte == 0).next().unwrap_or_default();
        let unfinished = sector[126] != 0;
        let sensible = block_bytes.is_power_of_two() && (512..=65_536).contains(&block_bytes) && blocks > 0;
        if &sector[..4] != MAGIC || unfinished || !sensible {
            return None;
        }
        Some(Superblock {
            label: String::from_utf8_lossy(label).into_owned(),
            size_bytes: blocks.checked_mul(block_bytes)?,
            journal_bytes: journal.checked_mul(block_bytes)?,
            part_bytes: read_be::<4>(sector, 84).checked_mul(block_bytes)?,
            // A wrong count is not judged here: the kernel corrects it when it mounts the filesystem.
            used_bytes: blocks.saturating_sub(journal).saturating_sub(free).checked_mul(block_bytes)?,
        })
    }
}

/// Reads a big-endian number of so many bytes.
fn read_be<const BYTES: usize>(sector: &[u8; LENGTH], at: usize) -> u64 {
    sector[at..at + BYTES].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u64 = 262_144;

    /// The superblock of a new filesystem of 1 GiB.
    fn fresh() -> [u8; LENGTH] {
        let mut sector = [0; LENGTH];
        sector[..4].copy_from_slice(MAGIC);
        sector[4..8].copy_from_slice(&4_096_u32.to_be_bytes());
        sector[8..16].copy_from_slice(&BLOCKS.to_be_bytes());
        sector[84..88].copy_from_slice(&65_536_u32.to_be_bytes());
        sector[96..100].copy_from_slice(&16_384_u32.to_be_bytes());
        sector[108..120].copy_from_slice(b"7k2m9q4x0abc");
        sector[144..152].copy_from_slice(&245_716_u64.to_be_bytes());
        sector
    }

    fn with(at: usize, bytes: &[u8]) -> [u8; LENGTH] {
        let mut sector = fresh();
        sector[at..at + bytes.len()].copy_from_slice(bytes);
        sector
    }

    /// The superblock holds the label, the size and the usage.
    #[test]
    fn superblock_holds_label_and_usage() {
        let read = Superblock::read(&fresh()[..]).unwrap().unwrap();
        let wanted = Superblock {
            label: "7k2m9q4x0abc".into(),
            size_bytes: 1 << 30,
            journal_bytes: 64 << 20,
            part_bytes: 256 << 20,
            used_bytes: 44 * 4_096,
        };
        assert_eq!(read, wanted);
        let short = Superblock::parse(&with(108, b"backup\0\0\0\0\0\0")).unwrap();
        assert_eq!(short.label, "backup", "a label that is shorter ends early");
        let odd = Superblock::parse(&with(144, &BLOCKS.to_be_bytes())).unwrap();
        assert_eq!(odd.used_bytes, 0, "a count that is wrong is not taken for a fault");
    }

    /// A sector that makes no sense is not a superblock.
    #[test]
    fn nonsense_is_no_superblock() {
        let cases: [(&str, [u8; LENGTH]); 8] = [
            ("nothing", [0; LENGTH]),
            ("another filesystem", with(0, b"EXT4")),
            ("one that was never finished", with(126, &[1])),
            ("blocks of no size", with(4, &[0; 4])),
            ("blocks of an odd size", with(4, &4_095_u32.to_be_bytes())),
            ("blocks that are too large", with(4, &(1_u32 << 20).to_be_bytes())),
            ("no blocks", with(8, &[0; 8])),
            ("more bytes than there can be", with(8, &[0xff; 8])),
        ];
        for (what, sector) in cases {
            assert_eq!(Superblock::parse(&sector), None, "{what}");
        }
        assert_eq!(Superblock::read(&fresh()[..LENGTH - 1]).unwrap(), None, "a part of one");
    }
}
