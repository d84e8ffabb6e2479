//! The link service: what the engine and the SSH server of the instance can ask of a guest.
//!
//! Start reading at [`Guest::serve_stream`], which serves one stream. It must not know where a stream comes from.

mod connect;
mod health;
pub(crate) mod listen;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_link::{Configuration, Error, Purpose, Reader, Reply, Result, Stream, Writer, opening};
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::Settings;
use crate::configuration::{self, State};
use crate::jobs::Jobs;
use crate::process::Children;
use crate::users::{self, Account, Accounts};
use listen::PendingConnections;

/// The maximum number of concurrent streams.
const MAX_STREAMS: usize = 512;

/// How long a stream may take to send its purpose.
const OPENING_TIMEOUT: Duration = Duration::from_secs(10);

/// A guest: its state, and everything it runs.
#[derive(Debug)]
pub struct Guest {
    pub(crate) settings: Settings,
    pub(crate) children: Arc<Children>,
    pub(crate) pending_connections: Arc<PendingConnections>,
    pub(crate) jobs: Jobs,
    state: Mutex<State>,
    ssh: watch::Sender<Arc<tarn_ssh::Settings>>,
    sessions: AtomicU32,
    streams: Arc<Semaphore>,
    stop: Notify,
    started: Instant,
}

impl Guest {
    /// Creates a guest from its stored state. The caller runs the reaping of children concurrently.
    pub fn new(settings: Settings, children: Arc<Children>) -> io::Result<Arc<Self>> {
        let state = State::load(&settings.root)?;
        let jobs = Jobs::load(&settings.root);
        let ssh = watch::Sender::new(Arc::new(crate::ssh_server::ssh_settings(state.host_key())?));
        Ok(Arc::new(Guest {
            settings,
            children,
            pending_connections: Arc::default(),
            jobs,
            state: Mutex::new(state),
            ssh,
            sessions: AtomicU32::new(0),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            stop: Notify::new(),
            started: Instant::now(),
        }))
    }

    /// Serves all connections to a control socket, forever.
    pub async fn serve_listener(self: &Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(self.clone().serve_stream(stream))),
                // Descriptors or memory have run out: others must end first, and an immediate retry would only waste
                // time.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Serves one stream to its end. An error of the other side ends its stream and nothing else.
    pub async fn serve_stream<S: Stream + 'static>(self: Arc<Self>, stream: S) {
        let (reader, writer) = tokio::io::split(stream);
        let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
        let Ok(_permit) = self.streams.clone().try_acquire_owned() else {
            let reason = format!("the guest already serves {MAX_STREAMS} streams");
            let _ = timeout(OPENING_TIMEOUT, writer.message(&Reply::Refused { reason })).await;
            return;
        };
        let Ok(Ok(purpose)) = timeout(OPENING_TIMEOUT, opening::accept(&mut reader, &mut writer)).await else { return };
        // A broken stream has no reader for the error.
        let _ = self.serve_purpose(purpose, reader, writer).await;
    }

    async fn serve_purpose<S: Stream>(
        self: &Arc<Self>,
        purpose: Purpose,
        reader: Reader<tokio::io::ReadHalf<S>>,
        mut writer: Writer<tokio::io::WriteHalf<S>>,
    ) -> Result<()> {
        match purpose {
            Purpose::Configure(configuration) => {
                let answer = match self.configure(*configuration) {
                    Ok(()) => Reply::Ready,
                    Err(reason) => Reply::Refused { reason },
                };
                writer.message(&answer).await
            }
            Purpose::Health => {
                let health = health::read_health(self.started.elapsed(), self.sessions.load(Ordering::Relaxed));
                writer.message(&Reply::Health(Box::new(health))).await
            }
            Purpose::Stop => {
                let result = writer.message(&Reply::Ready).await;
                self.stop.notify_one();
                result
            }
            Purpose::Session(session) => crate::session::serve_session(self, *session, reader, writer).await,
            Purpose::Connect(endpoint) => connect::serve_connect(self, endpoint, reader, writer).await,
            Purpose::Listen(endpoint) => listen::serve_listen(self, endpoint, reader, writer).await,
            Purpose::Take { id } => match self.pending_connections.take_connection(id) {
                Some(stream) => {
                    writer.message(&Reply::Ready).await?;
                    connect::relay_connection(stream, reader, writer).await
                }
                None => send_refusal(&mut writer, format!("connection {id} does not exist or has timed out")).await,
            },
            purpose @ (Purpose::RunJob(_)
            | Purpose::FollowJob { .. }
            | Purpose::StopJob { .. }
            | Purpose::ForgetJob { .. }
            | Purpose::ListJobs
            | Purpose::Outputs(_)) => crate::jobs::serve_job_purpose(self, purpose, reader, writer).await,
        }
    }

    /// Waits until the engine asks the guest to stop.
    pub async fn stop_requested(&self) {
        self.stop.notified().await;
    }

    /// Tells all jobs that the instance is stopping.
    pub fn announce_shutdown(&self) {
        self.jobs.announce_shutdown();
    }

    /// Saves the remaining output of jobs after all other processes have ended.
    pub fn save_remaining_output(&self) {
        self.jobs.save_remaining_output();
    }

    /// Returns the settings of the SSH server; its host key may change.
    pub(crate) fn ssh_settings(&self) -> watch::Receiver<Arc<tarn_ssh::Settings>> {
        self.ssh.subscribe()
    }

    /// Returns whether a public key may log in.
    pub(crate) fn is_key_authorized(&self, key: &str) -> bool {
        let account = self.account().ok();
        let state = self.state.lock();
        configuration::is_key_authorized(&state, account.as_ref(), key)
    }

    fn configure(&self, configuration: Configuration) -> std::result::Result<(), String> {
        configuration::check_configuration(&configuration)?;
        let account = self.account().map_err(|e| e.to_string())?;
        let mut state = self.state.lock();
        let before = state.host_key().to_owned();
        configuration::apply_configuration(&self.settings.root, &account, &mut state, configuration)
            .map_err(|e| e.to_string())?;
        if before != state.host_key() {
            // Only new connections use the new key; existing ones stay open.
            self.ssh
                .send_replace(Arc::new(crate::ssh_server::ssh_settings(state.host_key()).map_err(|e| e.to_string())?));
        }
        Ok(())
    }

    /// Reads all accounts.
    pub(crate) fn accounts(&self) -> io::Result<Accounts> {
        match self.settings.image {
            Some(_) => Ok(Accounts::load_lenient(&self.settings.root)),
            None => Accounts::load(&self.settings.root),
        }
    }

    /// Returns the user that sessions run as.
    pub(crate) fn account(&self) -> io::Result<Account> {
        let Settings { root, user, image, .. } = &self.settings;
        users::find_session_account(root, user, image.as_ref())
    }

    /// Returns whether a login name means the user that sessions run as.
    pub(crate) fn is_session_user(&self, name: &str) -> bool {
        let is_account = || self.account().is_ok_and(|account| account.name == name);
        name == self.settings.user || (self.settings.image.is_some() && is_account())
    }

    /// Counts a session until the guard is dropped.
    pub(crate) fn count_session(self: &Arc<Self>) -> SessionCount {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        SessionCount(self.clone())
    }
}

/// The guard of a counted session.
pub(crate) struct SessionCount(Arc<Guest>);

impl Drop for SessionCount {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn send_refusal<W: tokio::io::AsyncWrite + Unpin>(
    writer: &mut Writer<W>,
    reason: String,
) -> Result<()> {
    writer.message(&Reply::Refused { reason: reason.clone() }).await?;
    Err(Error::Refused(reason))
}
