//! The processes that the guest starts, and the orphans that become its children.
//!
//! One place waits for processes, so that nobody takes another's exit status. A child is started and written down under one
//! lock, and the same lock is held while ended processes are collected: a child that ends at once is never taken for an
//! orphan. Nothing else in this program may wait for a process.

use std::collections::HashMap;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Signal as ProcessSignal, WaitOptions, WaitStatus, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// How a child ended.
pub(crate) type Ending = oneshot::Receiver<WaitStatus>;

/// All children.
#[derive(Debug)]
pub struct Children {
    known: Mutex<HashMap<Pid, oneshot::Sender<WaitStatus>>>,
    collects_orphans: bool,
}

impl Children {
    /// Prepares for children, and gives the work of collecting them, which the caller runs beside everything else.
    pub fn new(collects_orphans: bool) -> io::Result<(Arc<Self>, impl Future<Output = ()> + Send + use<>)> {
        let signals = signal(SignalKind::child())?;
        let children = Arc::new(Children { known: Mutex::default(), collects_orphans });
        Ok((children.clone(), children.collect_all(signals)))
    }

    /// Starts a child.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Pid, Ending)> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, ending) = oneshot::channel();
        known.insert(pid, sender);
        Ok((pid, ending))
    }

    /// Kills a child; not if it has ended, which is then known. Its number is nobody else's before it was collected, and that
    /// happens under the same lock.
    pub(crate) fn kill(&self, pid: Pid, ending: &mut Ending) -> bool {
        let _known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = matches!(ending.try_recv(), Err(TryRecvError::Empty));
        if is_there {
            let _ = kill_process(pid, ProcessSignal::KILL);
        }
        is_there
    }

    async fn collect_all(self: Arc<Self>, mut signals: Signal) {
        loop {
            self.collect();
            if signals.recv().await.is_none() {
                return;
            }
        }
    }

    /// Collects whoever has ended.
    fn collect(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if self.collects_orphans {
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                if let Some(sender) = known.remove(&pid) {
                    // The session may be gone already; then nobody wants to know.
                    let _ = sender.send(status);
                }
            }
            return;
        }
        let ended: Vec<_> = known
            .keys()
            .filter_map(|pid| rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG).ok().flatten())
            .collect();
        for (pid, status) in ended {
            if let Some(sender) = known.remove(&pid) {
                let _ = sender.send(status);
            }
        }
    }
}
