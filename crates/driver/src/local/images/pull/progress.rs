//! The progress of a pull, as a text for the owner.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The progress of a pull.
pub(super) struct Progress {
    name: String,
    layers: u64,
    bytes: u64,
    layers_done: AtomicU64,
    bytes_done: AtomicU64,
    /// How many layers wait for a permit to be unpacked.
    waiting: AtomicU64,
    is_abandoned: watch::Sender<bool>,
    sender: watch::Sender<String>,
}

impl Progress {
    /// Creates the progress of a pull of so many layers and bytes.
    pub(in crate::local::images) fn new(name: String, layers: u64, bytes: u64, sender: watch::Sender<String>) -> Self {
        let (layers_done, bytes_done, waiting) = Default::default();
        let is_abandoned = watch::Sender::new(false);
        let progress = Progress { name, layers, bytes, layers_done, bytes_done, waiting, is_abandoned, sender };
        progress.publish();
        progress
    }

    /// Counts received bytes.
    pub(super) fn add_bytes(&self, bytes: u64) {
        let before = self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        // One update per megabyte is enough.
        if before / 1_000_000 != (before + bytes) / 1_000_000 {
            self.publish();
        }
    }

    /// Counts a finished layer.
    pub(super) fn finish_layer(&self) {
        self.layers_done.fetch_add(1, Ordering::Relaxed);
        self.publish();
    }

    /// Runs `work`, reporting meanwhile that the pull waits.
    pub(super) async fn report_while_waiting<T>(&self, work: impl Future<Output = T>) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.publish();
        let done = work.await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.publish();
        done
    }

    /// Ends the whole pull, because a part of it has failed.
    pub(super) fn abandon(&self) {
        self.is_abandoned.send_replace(true);
    }

    /// Returns when no caller waits for the pull any more, or when it was abandoned.
    pub(super) async fn wait_until_abandoned(&self) {
        let mut abandonment = self.is_abandoned.subscribe();
        tokio::select! {
            () = self.sender.closed() => {}
            _ = abandonment.wait_for(|is_abandoned| *is_abandoned) => {}
        }
    }

    fn publish(&self) {
        self.sender.send_replace(self.describe_progress());
    }

    fn describe_progress(&self) -> String {
        let megabytes = |bytes: u64| (bytes + 500_000) / 1_000_000;
        let all = megabytes(self.bytes).max(1);
        let done = megabytes(self.bytes_done.load(Ordering::Relaxed)).min(all);
        let layer = (self.layers_done.load(Ordering::Relaxed) + 1).min(self.layers);
        let waits = match self.waiting.load(Ordering::Relaxed) {
            0 => "",
            _ => "; waits for its turn, because other layers are being unpacked",
        };
        format!("pulls {}: {done} of {all} MB, layer {layer} of {}{waits}", self.name, self.layers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_bytes_and_layers() {
        let (sender, receiver) = watch::channel(String::new());
        let progress = Progress::new("debian:12".into(), 7, 480_000_000, sender);
        assert_eq!(*receiver.borrow(), "pulls debian:12: 0 of 480 MB, layer 1 of 7");
        progress.add_bytes(120_000_000);
        progress.finish_layer();
        progress.finish_layer();
        assert_eq!(*receiver.borrow(), "pulls debian:12: 120 of 480 MB, layer 3 of 7");
        (0..9).for_each(|_| progress.finish_layer());
        assert!(receiver.borrow().ends_with("layer 7 of 7"));
    }

    #[tokio::test]
    async fn progress_reports_waiting_and_abandonment() {
        let (sender, receiver) = watch::channel(String::new());
        let progress = Progress::new("debian:12".into(), 1, 0, sender);
        progress
            .report_while_waiting(async {
                assert!(receiver.borrow().contains("waits for its turn"), "{}", *receiver.borrow())
            })
            .await;
        assert!(!receiver.borrow().contains("waits"));
        progress.abandon();
        progress.wait_until_abandoned().await;
    }
}
