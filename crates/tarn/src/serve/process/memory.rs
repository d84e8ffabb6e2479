//! Gives memory back to the system that the engine has freed. The allocator keeps it otherwise, because small pieces
//! that are still in use lie between what was freed ([decision 28](../../../../docs/decisions/0028-unread-output.md)).
#![allow(unsafe_code, reason = "mallinfo2 and malloc_trim have no safe wrapper")]

use std::time::Duration;

/// How often the free memory is measured, which takes less than a millisecond.
const INTERVAL: Duration = Duration::from_secs(10);

/// How much must have been freed.
const MIN_FREED_BYTES: usize = 16 << 20;

/// Runs without end.
pub(in crate::serve) async fn return_freed_memory() {
    let mut freed = Freed::default();
    loop {
        tokio::time::sleep(INTERVAL).await;
        if freed.is_much(free_bytes()) {
            // In a thread that may block: it takes about a millisecond for each 10 MB.
            if let Err(error) = tokio::task::spawn_blocking(trim).await {
                tracing::warn!(%error, "freed memory could not be given back to the system");
            }
            metrics::counter!("tarn_memory_trims_total").increment(1);
        }
    }
}

/// How much memory was free when there was least since the last time that it was given back.
#[derive(Default)]
struct Freed {
    least: Option<usize>,
}

impl Freed {
    /// Returns whether much was freed since the last time that this returned true. What was given back still counts as
    /// free, until it is used again.
    fn is_much(&mut self, free: usize) -> bool {
        let least = self.least.map_or(free, |least| least.min(free));
        let is_much = free - least >= MIN_FREED_BYTES;
        self.least = Some(if is_much { free } else { least });
        is_much
    }
}

/// Returns how many bytes the allocator holds that are not in use.
fn free_bytes() -> usize {
    // SAFETY: the function only reads the state of the allocator, under its locks.
    unsafe { libc::mallinfo2() }.fordblks
}

fn trim() {
    // SAFETY: the function only returns pages to the system that are not in use, under the locks of the allocator.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory is given back once each time that much was freed.
    #[test]
    fn much_freed_memory_counts_once() {
        const MIB: usize = 1 << 20;
        let mut freed = Freed::default();
        let given_back = [100, 110, 120, 120, 60, 70, 76, 76, 10, 20].map(|free| freed.is_much(free * MIB));
        let expected = [false, false, true, false, false, false, true, false, false, false];
        assert_eq!(given_back, expected);
        assert!(free_bytes() > 0);
    }
}
