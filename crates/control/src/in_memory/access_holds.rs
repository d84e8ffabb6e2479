//! What callers and logins have open: sockets, long polls, transfers and SSH sessions. Each has a hold here, and the
//! reconciler `revocations` ends the holds whose access ended, all with one check.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// At which state of the database a hold was last checked.
pub(crate) type Checked = (i64, i64);

/// The holds of one kind; `H` is the holder, `E` is why its access ended.
pub(crate) struct AccessHolds<H, E>(Mutex<Holds<H, E>>);

struct Holds<H, E> {
    next: u64,
    by_number: HashMap<u64, Entry<H, E>>,
}

struct Entry<H, E> {
    holder: Arc<H>,
    checked: Option<Checked>,
    ended: watch::Sender<Option<E>>,
}

impl<H, E> Default for AccessHolds<H, E> {
    fn default() -> Self {
        AccessHolds(Mutex::new(Holds { next: 0, by_number: HashMap::new() }))
    }
}

impl<H, E: Clone> AccessHolds<H, E> {
    /// Adds a hold until the guard is dropped. The next check includes it, because the access of the holder may have
    /// ended since it was decided.
    pub(crate) fn add(self: &Arc<Self>, holder: H) -> HoldGuard<H, E> {
        let (ended, has_ended) = watch::channel(None);
        let mut holds = self.0.lock();
        let number = holds.next;
        holds.next += 1;
        holds.by_number.insert(number, Entry { holder: Arc::new(holder), checked: None, ended });
        HoldGuard { holds: self.clone(), number, has_ended }
    }

    /// Returns the holds that were not checked at this state of the database and have not ended.
    pub(crate) fn due(&self, now: Checked) -> Vec<(u64, Arc<H>)> {
        let holds = self.0.lock();
        let is_due = |entry: &Entry<H, E>| entry.checked != Some(now) && entry.ended.borrow().is_none();
        let due = holds.by_number.iter().filter(|(_, entry)| is_due(entry));
        due.map(|(number, entry)| (*number, entry.holder.clone())).collect()
    }

    /// Records that these holds were checked.
    pub(crate) fn mark_checked(&self, numbers: impl IntoIterator<Item = u64>, at: Checked) {
        let mut holds = self.0.lock();
        for number in numbers {
            if let Some(entry) = holds.by_number.get_mut(&number) {
                entry.checked = Some(at);
            }
        }
    }

    /// Ends a hold: its guard is informed.
    pub(crate) fn end(&self, number: u64, why: E) {
        if let Some(entry) = self.0.lock().by_number.get(&number) {
            entry.ended.send_replace(Some(why));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().by_number.is_empty()
    }
}

/// Keeps a hold.
pub(crate) struct HoldGuard<H, E> {
    holds: Arc<AccessHolds<H, E>>,
    number: u64,
    has_ended: watch::Receiver<Option<E>>,
}

impl<H, E: Clone> HoldGuard<H, E> {
    /// Waits until the access has ended, and returns why.
    pub(crate) async fn ended(&self) -> E {
        let mut ended = self.has_ended.clone();
        let why = ended.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            // The sender is in the entry, which exists as long as this guard.
            None => std::future::pending().await,
        }
    }
}

impl<H, E> Drop for HoldGuard<H, E> {
    fn drop(&mut self) {
        self.holds.0.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hold is checked once for every state, ends once, and is forgotten with its guard.
    #[tokio::test]
    async fn holds_are_checked_and_ended() {
        let holds: Arc<AccessHolds<&str, &str>> = Arc::default();
        let (first, second) = (holds.add("a"), holds.add("b"));
        let due = holds.due((1, 0));
        assert_eq!(due.len(), 2);
        holds.mark_checked(due.iter().map(|(number, _)| *number), (1, 0));
        assert!(holds.due((1, 0)).is_empty());
        let third = holds.add("c");
        assert_eq!(holds.due((1, 0)).len(), 1, "a new hold is checked although nothing changed");
        assert_eq!(holds.due((2, 0)).len(), 3);
        holds.end(second.number, "revoked");
        assert_eq!(second.ended().await, "revoked");
        assert_eq!(holds.due((3, 0)).len(), 2, "a hold ends once");
        assert!(futures::poll!(Box::pin(first.ended())).is_pending());
        drop((first, second, third));
        assert!(holds.is_empty());
    }
}
