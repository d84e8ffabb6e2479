//! How far a pull is, in words for the owner.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// How far a pull is.
pub(in crate::local::images) struct Progress {
    name: String,
    layers: u64,
    bytes: u64,
    layers_done: AtomicU64,
    bytes_done: AtomicU64,
    /// Layers that wait for others to be unpacked.
    waiting: AtomicU64,
    is_given_up: watch::Sender<bool>,
    tell: watch::Sender<String>,
}

impl Progress {
    /// A pull of so many layers with so many bytes.
    pub(in crate::local::images) fn new(name: String, layers: u64, bytes: u64, tell: watch::Sender<String>) -> Self {
        let (layers_done, bytes_done, waiting) = Default::default();
        let is_given_up = watch::Sender::new(false);
        let progress = Progress { name, layers, bytes, layers_done, bytes_done, waiting, is_given_up, tell };
        progress.tell();
        progress
    }

    /// More bytes have come.
    pub(in crate::local::images) fn add(&self, bytes: u64) {
        let before = self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        // Nobody reads faster than a megabyte comes.
        if before / 1_000_000 != (before + bytes) / 1_000_000 {
            self.tell();
        }
    }

    /// A layer is there.
    pub(super) fn finish_layer(&self) {
        self.layers_done.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    /// Waits for something that others have to do first, and says so.
    pub(super) async fn waiting<T>(&self, turn: impl Future<Output = T>) -> T {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.tell();
        let come = turn.await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.tell();
        come
    }

    /// The pull is in vain, because something of it has failed.
    pub(in crate::local::images) fn give_up(&self) {
        self.is_given_up.send_replace(true);
    }

    /// Ends when nobody waits for the pull any more, or it is in vain.
    pub(super) async fn abandoned(&self) {
        let mut given_up = self.is_given_up.subscribe();
        tokio::select! {
            () = self.tell.closed() => {}
            _ = given_up.wait_for(|is_given_up| *is_given_up) => {}
        }
    }

    fn tell(&self) {
        self.tell.send_replace(self.words());
    }

    fn words(&self) -> String {
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
    fn says_how_far_it_is() {
        let (tell, told) = watch::channel(String::new());
        let progress = Progress::new("debian:12".into(), 7, 480_000_000, tell);
        assert_eq!(*told.borrow(), "pulls debian:12: 0 of 480 MB, layer 1 of 7");
        progress.add(120_000_000);
        progress.finish_layer();
        progress.finish_layer();
        assert_eq!(*told.borrow(), "pulls debian:12: 120 of 480 MB, layer 3 of 7");
        (0..9).for_each(|_| progress.finish_layer());
        assert!(told.borrow().ends_with("layer 7 of 7"));
    }

    #[tokio::test]
    async fn says_that_it_waits_and_ends_when_it_is_in_vain() {
        let (tell, told) = watch::channel(String::new());
        let progress = Progress::new("debian:12".into(), 1, 0, tell);
        progress.waiting(async { assert!(told.borrow().contains("waits for its turn"), "{}", *told.borrow()) }).await;
        assert!(!told.borrow().contains("waits"));
        progress.give_up();
        progress.abandoned().await;
    }
}
