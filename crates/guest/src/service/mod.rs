//! The link service: what the engine, and the SSH server of the instance, can ask of a guest.
//!
//! Start reading at [`Guest::serve`], which serves one stream. It must not know where a stream comes from.

mod connect;
mod health;
mod listen;
pub(crate) mod pending;
mod pump;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tarn_link::{Answer, Configuration, Error, Purpose, Reader, Result, Stream, Writer, opening};
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::accounts::{self, Account, Accounts};
use crate::children::Children;
use crate::configuration::{self, State};
use crate::jobs::Jobs;
use crate::settings::Settings;
use pending::Pending;

/// How many streams are served at once.
const MAX_STREAMS: usize = 512;

/// How long a stream may take to say what it is for.
const OPENING_TIME: Duration = Duration::from_secs(10);

/// A guest: what it knows, and what it has running.
#[derive(Debug)]
pub struct Guest {
    pub(crate) settings: Settings,
    pub(crate) children: Arc<Children>,
    pub(crate) pending: Arc<Pending>,
    pub(crate) jobs: Jobs,
    state: Mutex<State>,
    ssh: watch::Sender<Arc<tarn_ssh::Settings>>,
    sessions: AtomicU32,
    streams: Arc<Semaphore>,
    stop: Notify,
    started: Instant,
}

impl Guest {
    /// Begins: reads what it was told in an earlier life. The caller runs the children's collection beside.
    pub fn new(settings: Settings, children: Arc<Children>) -> io::Result<Arc<Self>> {
        let state = State::load(&settings.root)?;
        let jobs = Jobs::load(&settings.root);
        let ssh = watch::Sender::new(Arc::new(crate::ssh_server::settings(state.host_key())?));
        Ok(Arc::new(Guest {
            settings,
            children,
            pending: Arc::default(),
            jobs,
            state: Mutex::new(state),
            ssh,
            sessions: AtomicU32::new(0),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            stop: Notify::new(),
            started: Instant::now(),
        }))
    }

    /// Serves everybody who connects to a control socket, for ever.
    pub async fn listen(self: &Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(self.clone().serve(stream))),
                // Descriptors or memory are short: others must end first, and trying again at once would only burn time.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Serves one stream to its end. What the other side does wrong ends its stream and nothing else.
    pub async fn serve<S: Stream + 'static>(self: Arc<Self>, stream: S) {
        let (reader, writer) = tokio::io::split(stream);
        let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
        let Ok(_place) = self.streams.clone().try_acquire_owned() else {
            let reason = format!("the guest serves {MAX_STREAMS} streams already");
            let _ = timeout(OPENING_TIME, writer.message(&Answer::Refused { reason })).await;
            return;
        };
        let Ok(Ok(purpose)) = timeout(OPENING_TIME, opening::accept(&mut reader, &mut writer)).await else { return };
        // A broken stream has nobody left who could be told.
        let _ = self.act(purpose, reader, writer).await;
    }

    async fn act<S: Stream>(
        self: &Arc<Self>,
        purpose: Purpose,
        reader: Reader<tokio::io::ReadHalf<S>>,
        mut writer: Writer<tokio::io::WriteHalf<S>>,
    ) -> Result<()> {
        match purpose {
            Purpose::Configure(configuration) => {
                let answer = match self.configure(*configuration) {
                    Ok(()) => Answer::Ready,
                    Err(reason) => Answer::Refused { reason },
                };
                writer.message(&answer).await
            }
            Purpose::Health => {
                let health = health::observe(self.started.elapsed(), self.sessions.load(Ordering::Relaxed));
                writer.message(&Answer::Health(Box::new(health))).await
            }
            Purpose::Stop => {
                let result = writer.message(&Answer::Ready).await;
                self.stop.notify_one();
                result
            }
            Purpose::Session(session) => crate::session::serve(self, *session, reader, writer).await,
            Purpose::Connect(endpoint) => connect::serve(self, endpoint, reader, writer).await,
            Purpose::Listen(endpoint) => listen::serve(self, endpoint, reader, writer).await,
            Purpose::Take { id } => match self.pending.take(id) {
                Some(stream) => {
                    writer.message(&Answer::Ready).await?;
                    pump::run(stream, reader, writer).await
                }
                None => refuse(&mut writer, format!("there is no connection {id}, or it waited too long")).await,
            },
            purpose @ (Purpose::RunJob(_)
            | Purpose::FollowJob { .. }
            | Purpose::StopJob { .. }
            | Purpose::ForgetJob { .. }
            | Purpose::ListJobs
            | Purpose::Outputs(_)) => crate::jobs::serve(self, purpose, reader, writer).await,
        }
    }

    /// Waits until somebody asks the guest to stop.
    pub async fn stop_requested(&self) {
        self.stop.notified().await;
    }

    /// Lets jobs know that the instance ends.
    pub fn prepare_for_the_end(&self) {
        self.jobs.prepare_for_the_end();
    }

    /// Keeps what jobs wrote before everybody but this process ended.
    pub fn keep_the_rest(&self) {
        self.jobs.keep_the_rest();
    }

    /// How the SSH server behaves; its host key may change.
    pub(crate) fn ssh_settings(&self) -> watch::Receiver<Arc<tarn_ssh::Settings>> {
        self.ssh.subscribe()
    }

    /// Whether a public key may log in.
    pub(crate) fn opens(&self, key: &str) -> bool {
        let account = self.account().ok();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        configuration::opens(&state, account.as_ref(), key)
    }

    fn configure(&self, configuration: Configuration) -> std::result::Result<(), String> {
        configuration::check(&configuration)?;
        let account = self.account().map_err(|e| e.to_string())?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.host_key().to_owned();
        configuration::apply(&self.settings.root, &account, &mut state, configuration).map_err(|e| e.to_string())?;
        if before != state.host_key() {
            // Only connections that begin from now on see the new key; nobody is thrown out.
            self.ssh.send_replace(Arc::new(crate::ssh_server::settings(state.host_key()).map_err(|e| e.to_string())?));
        }
        Ok(())
    }

    /// All accounts, as they are now.
    pub(crate) fn accounts(&self) -> io::Result<Accounts> {
        match self.settings.image {
            Some(_) => Ok(Accounts::of_image(&self.settings.root)),
            None => Accounts::read(&self.settings.root),
        }
    }

    /// The user that sessions run as.
    pub(crate) fn account(&self) -> io::Result<Account> {
        let Settings { root, user, image, .. } = &self.settings;
        accounts::of_sessions(root, user, image.as_ref())
    }

    /// Whether a login name means the user that sessions run as.
    pub(crate) fn is_user(&self, name: &str) -> bool {
        let is_account = || self.account().is_ok_and(|account| account.name == name);
        name == self.settings.user || (self.settings.image.is_some() && is_account())
    }

    /// Counts a session for as long as the guard lives.
    pub(crate) fn count_session(self: &Arc<Self>) -> Counted {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }
}

/// A session that is counted.
pub(crate) struct Counted(Arc<Guest>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(crate) async fn refuse<W: tokio::io::AsyncWrite + Unpin>(writer: &mut Writer<W>, reason: String) -> Result<()> {
    writer.message(&Answer::Refused { reason: reason.clone() }).await?;
    Err(Error::Refused(reason))
}
