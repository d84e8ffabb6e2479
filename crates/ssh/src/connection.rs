//! Handles the requests of a client on its connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use russh::keys::{Algorithm, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Handle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Error, Pty, Sig};
use tarn_link::{Endpoint, Program, ToGuest, Window};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::channels::channel_buffer::ChannelBuffers;
use crate::channels::listeners::{ListenRequest, Listeners};
use crate::channels::relay::OpenChannel;
use crate::channels::{forwards, sessions};
use crate::connection_limits::ConnectionPermit;
use crate::{Authorizer, Key, Login, Settings, Target};

/// The limits on the environment variables of one session: their number, and the total of their bytes.
const MAX_VARIABLES: usize = 128;
const MAX_ENVIRONMENT: usize = 64 << 10;

/// What a connection is given when it starts.
pub(crate) struct ConnectionContext {
    pub(crate) settings: Arc<Settings>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// Handles one connection. All tasks of the connection end when this is dropped.
pub(crate) struct ConnectionHandler {
    context: ConnectionContext,
    permit: ConnectionPermit,
    logged_in: watch::Sender<Option<Arc<dyn Target>>>,
    has_refused_key: bool,
    target: Option<Arc<dyn Target>>,
    buffers: Arc<ChannelBuffers>,
    permits: Arc<Semaphore>,
    pending_sessions: HashMap<ChannelId, PendingSession>,
    listeners: Listeners,
    tasks: JoinSet<()>,
}

/// A session channel whose program has not been requested yet.
struct PendingSession {
    output: ChannelWriteHalf<Msg>,
    permit: OwnedSemaphorePermit,
    session: tarn_link::Session,
}

impl ConnectionHandler {
    pub(crate) fn new(
        context: ConnectionContext,
        permit: ConnectionPermit,
        logged_in: watch::Sender<Option<Arc<dyn Target>>>,
    ) -> ConnectionHandler {
        let limits = &context.settings.limits;
        let buffers = ChannelBuffers::new(limits.window, limits.held_per_connection);
        let permits = Arc::new(Semaphore::new(limits.channels));
        let (pending_sessions, listeners, tasks) = Default::default();
        ConnectionHandler {
            context,
            permit,
            logged_in,
            has_refused_key: false,
            target: None,
            buffers,
            permits,
            pending_sessions,
            listeners,
            tasks,
        }
    }

    async fn check_key(&mut self, user: &str, key: &PublicKey, algorithm: &Algorithm, proven: bool) -> Auth {
        // SHA-1 signatures can be forged.
        let is_weak = matches!(algorithm, Algorithm::Rsa { hash: None } | Algorithm::Dsa);
        if let Some(key) = Key::from_public_key(key).filter(|_| !is_weak) {
            let login = Login { user, key: &key, from: self.context.from, proven };
            if let Ok(target) = self.context.authorizer.authorize(login).await {
                if proven {
                    self.target = Some(target);
                }
                return Auth::Accept;
            }
        }
        self.permit.record_refused_key();
        self.has_refused_key = true;
        Auth::reject()
    }

    /// Runs a task that ends with the connection at the latest.
    fn spawn_task(&mut self, permit: OwnedSemaphorePermit, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            task.await;
            drop(permit);
        });
    }

    /// Starts the session of a channel, once for every channel.
    fn start_session(&mut self, id: ChannelId, program: Program, session: &mut Session) -> Result<(), Error> {
        let (Some(pending), Some(target)) = (self.pending_sessions.remove(&id), self.target.clone()) else {
            return session.channel_failure(id);
        };
        let (from, to) = (self.context.from, self.context.to);
        let connection =
            Some((from.ip().to_canonical().to_string(), from.port(), to.ip().to_canonical().to_string(), to.port()));
        let link_session = tarn_link::Session { program, connection, ..pending.session };
        let channel = OpenChannel::new(session.handle(), pending.output, self.buffers.clone());
        // If the target refuses, the reason appears in the output of the session.
        session.channel_success(id)?;
        self.spawn_task(pending.permit, sessions::run_session(channel, target, self.buffers.clone(), link_session));
        Ok(())
    }

    async fn open_forward(&mut self, channel: Channel<Msg>, reply: ChannelOpenHandle, handle: Handle, to: Endpoint) {
        let (Some(target), Ok(permit)) = (self.target.clone(), self.permits.clone().try_acquire_owned()) else {
            return reply.reject(ChannelOpenFailure::ResourceShortage).await;
        };
        let task = forwards::connect_from_target(channel, reply, handle, target, self.buffers.clone(), to);
        self.spawn_task(permit, task);
    }

    /// Passes an event of a channel on.
    fn push_event(&self, channel: ChannelId, event: ToGuest) {
        if let Some(buffer) = self.buffers.get_unless_ended(channel) {
            buffer.push_event(event);
        }
    }

    async fn start_listening(&mut self, request: ListenRequest, handle: Handle) -> Option<u16> {
        let target = self.target.clone()?;
        let listening =
            self.listeners.start_listener(request, handle, target, self.buffers.clone(), self.permits.clone());
        listening.await.ok()
    }
}

impl Drop for ConnectionHandler {
    fn drop(&mut self) {
        if self.has_refused_key && self.logged_in.borrow().is_none() {
            self.context.authorizer.login_failed(self.context.from);
        }
    }
}

impl Handler for ConnectionHandler {
    type Error = Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Error> {
        Ok(self.check_key(user, offer.public_key, offer.algorithm, false).await)
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Error> {
        Ok(self.check_key(user, key.public_key, key.algorithm, true).await)
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), Error> {
        self.permit.mark_logged_in();
        self.logged_in.send_replace(self.target.clone());
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let (_, output) = channel.split();
        self.pending_sessions
            .insert(output.id(), PendingSession { output, permit, session: tarn_link::Session::default() });
        reply.accept().await;
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Error> {
        match u16::try_from(port) {
            Ok(port) => {
                self.open_forward(channel, reply, session.handle(), Endpoint::Tcp { host: host.to_owned(), port }).await
            }
            Err(_) => reply.reject(ChannelOpenFailure::ConnectFailed).await,
        }
        Ok(())
    }

    async fn channel_open_direct_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        path: &str,
        reply: ChannelOpenHandle,
        session: &mut Session,
    ) -> Result<(), Error> {
        self.open_forward(channel, reply, session.handle(), Endpoint::Unix { path: path.to_owned() }).await;
        Ok(())
    }

    async fn pty_request(
        &mut self,
        channel: ChannelId,
        term: &str,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Error> {
        let Some(pending) = self.pending_sessions.get_mut(&channel).filter(|_| term.len() <= 256) else {
            return session.channel_failure(channel);
        };
        let modes = modes.iter().map(|(mode, value)| (*mode as u8, *value)).collect();
        let window = clamp_window(columns, rows, width, height);
        pending.session.pty = Some(tarn_link::Pty { term: term.to_owned(), window, modes });
        session.channel_success(channel)
    }

    async fn x11_request(
        &mut self,
        channel: ChannelId,
        _: bool,
        _: &str,
        _: &str,
        _: u32,
        session: &mut Session,
    ) -> Result<(), Error> {
        session.channel_failure(channel)
    }

    async fn env_request(
        &mut self,
        channel: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        let Some(pending) = self.pending_sessions.get_mut(&channel) else { return session.channel_failure(channel) };
        let environment = &mut pending.session.environment;
        let size: usize = environment.iter().map(|(name, value)| name.len() + value.len()).sum();
        if environment.len() >= MAX_VARIABLES || size + name.len() + value.len() > MAX_ENVIRONMENT {
            return session.channel_failure(channel);
        }
        environment.push((name.to_owned(), value.to_owned()));
        session.channel_success(channel)
    }

    async fn agent_request(&mut self, channel: ChannelId, _: &mut Session) -> Result<bool, Error> {
        let Some(pending) = self.pending_sessions.get_mut(&channel) else { return Ok(false) };
        pending.session.agent = true;
        Ok(true)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Error> {
        self.start_session(channel, Program::Shell, session)
    }

    async fn exec_request(&mut self, channel: ChannelId, command: &[u8], session: &mut Session) -> Result<(), Error> {
        self.start_session(channel, Program::Exec(command.to_vec()), session)
    }

    async fn subsystem_request(&mut self, channel: ChannelId, name: &str, session: &mut Session) -> Result<(), Error> {
        match name {
            "sftp" => self.start_session(channel, Program::Sftp, session),
            _ => session.channel_failure(channel),
        }
    }

    async fn window_change_request(
        &mut self,
        channel: ChannelId,
        columns: u32,
        rows: u32,
        width: u32,
        height: u32,
        _: &mut Session,
    ) -> Result<(), Error> {
        let window = clamp_window(columns, rows, width, height);
        match self.pending_sessions.get_mut(&channel) {
            Some(pending) => {
                if let Some(pty) = &mut pending.session.pty {
                    pty.window = window;
                }
            }
            None => self.push_event(channel, ToGuest::Resize(window)),
        }
        Ok(())
    }

    async fn signal(&mut self, channel: ChannelId, signal: Sig, _: &mut Session) -> Result<(), Error> {
        self.push_event(channel, ToGuest::Signal(sessions::signal_name(signal)));
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _: &mut Session) -> Result<(), Error> {
        if self.buffers.push_data(channel, data).await { Ok(()) } else { Err(Error::Pending) }
    }

    fn adjust_window(&mut self, channel: ChannelId, current: u32) -> u32 {
        self.buffers.next_window(channel, current)
    }

    async fn channel_eof(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Error> {
        if let Some(buffer) = self.buffers.get_unless_ended(channel) {
            buffer.push_eof();
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Error> {
        self.pending_sessions.remove(&channel);
        self.buffers.end_channel(channel);
        Ok(())
    }

    async fn tcpip_forward(&mut self, address: &str, port: &mut u32, session: &mut Session) -> Result<bool, Error> {
        let Ok(asked_port) = u16::try_from(*port) else { return Ok(false) };
        let request = ListenRequest::Tcp { address: address.to_owned(), port: asked_port };
        let Some(chosen) = self.start_listening(request, session.handle()).await else { return Ok(false) };
        *port = chosen.into();
        Ok(true)
    }

    async fn cancel_tcpip_forward(&mut self, address: &str, port: u32, _: &mut Session) -> Result<bool, Error> {
        let Ok(port) = u16::try_from(port) else { return Ok(false) };
        Ok(self.listeners.stop_listener(&ListenRequest::Tcp { address: address.to_owned(), port }))
    }

    async fn streamlocal_forward(&mut self, path: &str, session: &mut Session) -> Result<bool, Error> {
        Ok(self.start_listening(ListenRequest::Unix { path: path.to_owned() }, session.handle()).await.is_some())
    }

    async fn cancel_streamlocal_forward(&mut self, path: &str, _: &mut Session) -> Result<bool, Error> {
        Ok(self.listeners.stop_listener(&ListenRequest::Unix { path: path.to_owned() }))
    }
}

/// Limits a size to what a terminal can have.
fn clamp_window(columns: u32, rows: u32, width: u32, height: u32) -> Window {
    let short = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    Window { columns: short(columns), rows: short(rows), width: short(width), height: short(height) }
}
