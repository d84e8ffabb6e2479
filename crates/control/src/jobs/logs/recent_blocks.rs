//! Parts of logs that were read from the database a moment ago. Followers take small pieces, so that little is kept for
//! each of them; a block is read once for all pieces and all followers.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_model::ids::JobId;

/// How many bytes are read from the database at a time.
pub(super) const BLOCK_BYTES: u64 = 256 << 10;

/// How many blocks are kept, of all logs together: 8 MiB.
const MAX_BLOCKS: usize = 32;

/// The blocks that were used most recently, the newest at the back. A log only grows, so a block stays right.
#[derive(Default)]
pub(crate) struct RecentBlocks(Mutex<VecDeque<Block>>);

struct Block {
    job: JobId,
    start: u64,
    data: Bytes,
}

impl RecentBlocks {
    /// Returns `length` bytes of output from `offset` on, if a block has them.
    pub(super) fn find(&self, job: &JobId, offset: u64, length: u64) -> Option<Bytes> {
        let mut blocks = self.0.lock();
        let found = |block: &Block| if block.job == *job { block.slice(offset, length) } else { None };
        let (at, data) = blocks.iter().enumerate().find_map(|(at, block)| Some((at, found(block)?)))?;
        if let Some(block) = blocks.remove(at) {
            blocks.push_back(block);
        }
        Some(data)
    }

    /// Adds a block, and drops the one that was not used for the longest time.
    pub(super) fn insert(&self, job: &JobId, start: u64, data: Bytes) {
        let mut blocks = self.0.lock();
        if blocks.len() >= MAX_BLOCKS {
            blocks.pop_front();
        }
        blocks.push_back(Block { job: job.clone(), start, data });
    }
}

impl Block {
    /// Returns `length` bytes from `offset` on, if all of them are in the block.
    fn slice(&self, offset: u64, length: u64) -> Option<Bytes> {
        let begin = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let end = begin.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.data.len()).then(|| self.data.slice(begin..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block has its bytes and no others, and only a number of blocks is kept.
    #[test]
    fn block_has_its_bytes() {
        let blocks = RecentBlocks::default();
        let job = |number: usize| format!("j-{number:012}").parse::<JobId>().unwrap();
        blocks.insert(&job(0), 100, Bytes::from_static(b"hello"));
        assert_eq!(blocks.find(&job(0), 101, 3).unwrap(), "ell");
        assert_eq!(blocks.find(&job(0), 104, 1).unwrap(), "o");
        assert_eq!([(0, 99), (0, 104), (1, 101)].map(|(of, at)| blocks.find(&job(of), at, 2)), [None, None, None]);
        for number in 1..MAX_BLOCKS {
            blocks.insert(&job(number), 0, Bytes::from_static(b"x"));
        }
        assert!(blocks.find(&job(0), 100, 1).is_some(), "it is the newest now");
        blocks.insert(&job(MAX_BLOCKS), 0, Bytes::from_static(b"x"));
        assert!(blocks.find(&job(0), 100, 1).is_some() && blocks.find(&job(1), 0, 1).is_none());
    }
}
