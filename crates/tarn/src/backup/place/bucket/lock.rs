//! The lock of a bucket: an object that only one process can create. It says which process that is, and the process
//! renews it.
//!
//! The lock of a process of this host that does not run any more is taken over at once. That of another host is
//! watched: if it is not renewed for a while, its process is dead. No clocks are compared. A process that could not
//! renew its lock in time stops, before it removes or completes anything.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::{Error, PutMode, UpdateVersion};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::holder::Holder;
use super::objects::Objects;
use crate::failure::{Failure, Result};

/// The object.
pub(super) const LOCK: &str = "tarn-backups.lock";

/// How often the lock is renewed.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// How long a process acts without that.
pub(super) const LEASE: Duration = Duration::from_secs(60);

/// How long the lock of a process of another host is watched. A call that began in time has ended by then.
const WATCH: Duration = Duration::from_secs(150);
const WATCH_PAUSE: Duration = Duration::from_secs(5);

/// How often a lock is tried to be taken that others release and take meanwhile.
const TRIES: u32 = 5;

/// A lock that this process has.
pub(super) struct Lock {
    state: Arc<Mutex<State>>,
    renewal: JoinHandle<()>,
    first_tag: String,
}

struct State {
    objects: Objects,
    holder: Holder,
    tag: String,
    renewed: Instant,
    is_lost: bool,
}

impl Lock {
    /// Takes the lock.
    pub(super) async fn take(objects: &Objects, holder: Holder) -> Result<Lock> {
        let failed = |e: io::Error| Failure::with_cause("cannot lock the backups", e);
        for _ in 0..TRIES {
            match objects.put_if(LOCK, body(&holder), PutMode::Create).await {
                Ok(put) => {
                    refuse_without_conditions(objects, &holder).await?;
                    return Ok(Lock::begin(objects, holder, put.e_tag.unwrap_or_default()));
                }
                Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(failed(objects.failed(error))),
            }
            // It may have been released meanwhile.
            let Some((found, tag)) = read(objects).await.map_err(failed)? else { continue };
            // The response to a call that succeeded may have been lost.
            if found.id == holder.id {
                return Ok(Lock::begin(objects, holder, tag));
            }
            let Some(tag) = wait_until_dead(objects, &holder, found, tag).await? else { continue };
            match objects.put_if(LOCK, body(&holder), update(&tag)).await {
                Ok(put) => return Ok(Lock::begin(objects, holder, put.e_tag.unwrap_or_default())),
                Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(failed(objects.failed(error))),
            }
        }
        Err(Failure("other processes use the backups; try again later".to_owned()))
    }

    fn begin(objects: &Objects, holder: Holder, tag: String) -> Lock {
        let first_tag = tag.clone();
        let state = State { objects: objects.clone(), holder, tag, renewed: Instant::now(), is_lost: false };
        let state = Arc::new(Mutex::new(state));
        let renewed = state.clone();
        let renewal = tokio::spawn(async move {
            loop {
                sleep(RENEW_INTERVAL).await;
                // Without the server the lock lasts as long as its lease.
                let _ = renewed.lock().await.renew().await;
            }
        });
        Lock { state, renewal, first_tag }
    }

    /// The tag of the object when it was written.
    pub(super) fn first_tag(&self) -> &str {
        &self.first_tag
    }

    /// Fails unless this process still has the lock.
    pub(super) async fn confirm(&self) -> io::Result<()> {
        let mut state = self.state.lock().await;
        let pause = state.renewed.elapsed();
        if pause > LEASE {
            state.is_lost = true;
        }
        if state.is_lost {
            return Err(io::Error::other(format!(
                "this process did not renew its lock of the backups for {} s, and another one may use them meanwhile",
                pause.as_secs()
            )));
        }
        state.renew().await
    }

    /// Ends the lock.
    pub(super) async fn release(&self) {
        self.renewal.abort();
        let state = self.state.lock().await;
        if !state.is_lost && state.renewed.elapsed() <= LEASE {
            // If this fails, the process is found to be dead.
            let _ = state.objects.remove([LOCK.to_owned()]).await;
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.renewal.abort();
    }
}

impl State {
    async fn renew(&mut self) -> io::Result<()> {
        let holder = self.holder.renewed();
        match self.objects.put_if(LOCK, body(&holder), update(&self.tag)).await {
            Ok(put) => self.keep(holder, put.e_tag.unwrap_or_default()),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => match read(&self.objects).await? {
                // The response to a call that succeeded was lost.
                Some((found, tag)) if found.id == self.holder.id => self.keep(found, tag),
                _ => {
                    self.is_lost = true;
                    return Err(io::Error::other("another process has taken the lock of the backups"));
                }
            },
            Err(error) => return Err(self.objects.failed(error)),
        }
        Ok(())
    }

    fn keep(&mut self, holder: Holder, tag: String) {
        (self.holder, self.tag, self.renewed) = (holder, tag, Instant::now());
    }
}

/// Waits until it is known that the process that has the lock is dead, and returns the tag of the lock; `None` if the
/// lock was released. Fails if the process lives.
async fn wait_until_dead(objects: &Objects, this: &Holder, found: Holder, tag: String) -> Result<Option<String>> {
    match found.is_running(this) {
        Some(true) => return Err(found.busy()),
        Some(false) => return Ok(Some(tag)),
        None => {}
    }
    let (who, seconds) = (found.shown(), WATCH.as_secs());
    eprintln!("tarn: {who} locked the backups; waiting {seconds} s to see whether it lives");
    let since = Instant::now();
    while since.elapsed() < WATCH {
        sleep(WATCH_PAUSE).await;
        match read(objects).await.map_err(|e| Failure::with_cause("cannot lock the backups", e))? {
            None => return Ok(None),
            Some((_, now)) if now != tag => return Err(found.busy()),
            Some(_) => {}
        }
    }
    Ok(Some(tag))
}

/// Fails if the server ignores the conditions of writes: two processes could take the lock.
async fn refuse_without_conditions(objects: &Objects, holder: &Holder) -> Result<()> {
    let again = objects.put_if(LOCK, body(holder), PutMode::Create).await;
    let other = objects.put_if(LOCK, body(holder), update("\"00000000000000000000000000000000\"")).await;
    let respected =
        matches!(again, Err(Error::AlreadyExists { .. })) && matches!(other, Err(Error::Precondition { .. }));
    if respected {
        return Ok(());
    }
    let _ = objects.remove([LOCK.to_owned()]).await;
    for outcome in [again, other] {
        if let Err(error @ (Error::Generic { .. } | Error::PermissionDenied { .. })) = outcome {
            return Err(Failure::with_cause("cannot lock the backups", objects.failed(error)));
        }
    }
    Err(Failure(format!(
        "{} ignores conditions of writes (If-None-Match, If-Match), so two backups could destroy each other; back up to \
         another server, or to a directory",
        objects.server()
    )))
}

/// Reads the lock and its tag; `None` if there is none. What is not understood belongs to a process of another host.
async fn read(objects: &Objects) -> io::Result<Option<(Holder, String)>> {
    let Some((content, tag)) = objects.read_with_tag(LOCK).await? else { return Ok(None) };
    let holder = serde_json::from_slice(&content).unwrap_or_else(|_| Holder::unknown());
    Ok(Some((holder, tag)))
}

fn body(holder: &Holder) -> Vec<u8> {
    serde_json::to_vec(holder).unwrap_or_default()
}

fn update(tag: &str) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag: Some(tag.to_owned()), version: None })
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    fn objects() -> Objects {
        Objects::new(Arc::new(InMemory::new()), "bucket", "", "memory".to_owned())
    }

    /// One process has the lock, and the next one when it was released.
    #[tokio::test]
    async fn lock_is_exclusive() {
        let objects = objects();
        let first = Lock::take(&objects, Holder::this()).await.unwrap();
        let refused = Lock::take(&objects, Holder::this()).await.err().unwrap();
        assert!(refused.0.contains(&std::process::id().to_string()), "{refused}");
        first.confirm().await.unwrap();
        first.release().await;
        let second = Lock::take(&objects, Holder::this()).await.unwrap();
        assert!(first.confirm().await.is_err(), "it has ended");
        second.confirm().await.unwrap();
    }

    /// The lock of a process of this host that was killed is free at once.
    #[tokio::test]
    async fn lock_of_a_dead_process_is_taken_over() {
        let objects = objects();
        let dead = Holder::of_dead_process();
        let first = Lock::take(&objects, dead).await.unwrap();
        Lock::take(&objects, Holder::this()).await.unwrap().confirm().await.unwrap();
        assert!(first.confirm().await.unwrap_err().to_string().contains("another process"));
    }

    /// The lock of another host is taken over when it is not renewed, and not before.
    #[tokio::test(start_paused = true)]
    async fn lock_of_another_host_is_watched() {
        let objects = objects();
        let other = || Holder::of_host("elsewhere");
        let first = Lock::take(&objects, other()).await.unwrap();
        assert!(
            Lock::take(&objects, Holder::this()).await.is_err_and(|refused| refused.0.contains("uses the backups"))
        );
        first.confirm().await.unwrap();
        first.renewal.abort();
        let since = Instant::now();
        Lock::take(&objects, Holder::this()).await.unwrap();
        assert!(since.elapsed() >= WATCH && WATCH > LEASE + RENEW_INTERVAL);
        let said = first.confirm().await.unwrap_err().to_string();
        assert!(said.contains("did not renew"), "{said}");
    }
}
