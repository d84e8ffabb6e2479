//! The processes that the guest starts, and the orphans that become its children.
//!
//! Only this module waits for processes, so that each exit status reaches its owner. A child is started and recorded
//! under one lock, and the same lock is held while ended processes are reaped: a child that ends at once is never
//! mistaken for an orphan. Nothing else in this program may wait for a process.

use std::collections::HashMap;
use std::io;
use std::process::Command;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal as ProcessSignal, WaitOptions, WaitStatus, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Receives the exit status of a child.
pub(crate) type ChildExit = oneshot::Receiver<WaitStatus>;

/// All children of this process.
#[derive(Debug)]
pub struct Children {
    exit_senders: Mutex<HashMap<Pid, oneshot::Sender<WaitStatus>>>,
    reaps_orphans: bool,
}

impl Children {
    /// Creates the registry, and the future that reaps children, which the caller runs concurrently.
    pub fn new(reaps_orphans: bool) -> io::Result<(Arc<Self>, impl Future<Output = ()> + Send + use<>)> {
        let signals = signal(SignalKind::child())?;
        let children = Arc::new(Children { exit_senders: Mutex::default(), reaps_orphans });
        Ok((children.clone(), children.reap_on_signal(signals)))
    }

    /// Starts a child.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<(Pid, ChildExit)> {
        let mut exit_senders = self.exit_senders.lock();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, ending) = oneshot::channel();
        exit_senders.insert(pid, sender);
        Ok((pid, ending))
    }

    /// Kills a child unless it has ended; returns whether it was still running. Its process id cannot be reused before
    /// it is reaped, which happens under the same lock.
    pub(crate) fn kill_unless_ended(&self, pid: Pid, ending: &mut ChildExit) -> bool {
        let _known = self.exit_senders.lock();
        let is_there = matches!(ending.try_recv(), Err(TryRecvError::Empty));
        if is_there {
            let _ = kill_process(pid, ProcessSignal::KILL);
        }
        is_there
    }

    async fn reap_on_signal(self: Arc<Self>, mut signals: Signal) {
        loop {
            self.reap_ended();
            if signals.recv().await.is_none() {
                return;
            }
        }
    }

    /// Reaps the processes that have ended.
    fn reap_ended(&self) {
        let mut exit_senders = self.exit_senders.lock();
        if self.reaps_orphans {
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                if let Some(sender) = exit_senders.remove(&pid) {
                    // The session may have ended already, and then the status is not needed.
                    let _ = sender.send(status);
                }
            }
            return;
        }
        let ended: Vec<_> = exit_senders
            .keys()
            .filter_map(|pid| rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG).ok().flatten())
            .collect();
        for (pid, status) in ended {
            if let Some(sender) = exit_senders.remove(&pid) {
                let _ = sender.send(status);
            }
        }
    }
}
