//! What a client may ask for on its connection.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use russh::keys::{Algorithm, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Handle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Error, Pty, Sig};
use tarn_link::{Endpoint, Program, ToGuest, Window};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::gate::Ticket;
use crate::inbox::Inboxes;
use crate::listeners::{Asked, Listeners};
use crate::relay::Line;
use crate::{Authorizer, Key, Settings, Target, Visit, forwards, sessions};

/// Variables that a client may send for one session, and all of their bytes.
const MAX_VARIABLES: usize = 128;
const MAX_ENVIRONMENT: usize = 64 << 10;

/// Where a visitor stands.
pub(crate) struct Place {
    pub(crate) settings: Arc<Settings>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// One client. All that was begun for it ends when this is dropped.
pub(crate) struct Visitor {
    place: Place,
    ticket: Ticket,
    entered: watch::Sender<bool>,
    machine: Option<Arc<dyn Target>>,
    inboxes: Arc<Inboxes>,
    slots: Arc<Semaphore>,
    preparing: HashMap<ChannelId, Preparing>,
    listeners: Listeners,
    tasks: JoinSet<()>,
}

/// A session whose program has not been named yet.
struct Preparing {
    output: ChannelWriteHalf<Msg>,
    slot: OwnedSemaphorePermit,
    session: tarn_link::Session,
}

impl Visitor {
    pub(crate) fn new(place: Place, ticket: Ticket, entered: watch::Sender<bool>) -> Visitor {
        let limits = &place.settings.limits;
        let inboxes = Inboxes::new(limits.window, limits.held_per_connection);
        let slots = Arc::new(Semaphore::new(limits.channels));
        let (preparing, listeners, tasks) = Default::default();
        Visitor { place, ticket, entered, machine: None, inboxes, slots, preparing, listeners, tasks }
    }

    async fn enter(&mut self, user: &str, key: &PublicKey, algorithm: &Algorithm, proven: bool) -> Auth {
        // Signatures over SHA-1 can be forged.
        let is_weak = matches!(algorithm, Algorithm::Rsa { hash: None } | Algorithm::Dsa);
        if let Some(key) = Key::of(key).filter(|_| !is_weak) {
            let visit = Visit { user, key: &key, from: self.place.from, proven };
            if let Ok(machine) = self.place.authorizer.enter(visit).await {
                if proven {
                    self.machine = Some(machine);
                }
                return Auth::Accept;
            }
        }
        self.ticket.refused();
        Auth::reject()
    }

    /// Runs something until its end, or that of the connection.
    fn begin(&mut self, slot: OwnedSemaphorePermit, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(async move {
            task.await;
            drop(slot);
        });
    }

    /// Begins a session, once for every channel.
    fn start(&mut self, id: ChannelId, program: Program, session: &mut Session) -> Result<(), Error> {
        let (Some(prepared), Some(machine)) = (self.preparing.remove(&id), self.machine.clone()) else {
            return session.channel_failure(id);
        };
        let (from, to) = (self.place.from, self.place.to);
        let connection =
            Some((from.ip().to_canonical().to_string(), from.port(), to.ip().to_canonical().to_string(), to.port()));
        let begun = tarn_link::Session { program, connection, ..prepared.session };
        let line = Line::new(session.handle(), prepared.output, self.inboxes.clone());
        // Should the machine refuse, the person reads why where he expects output.
        session.channel_success(id)?;
        self.begin(prepared.slot, sessions::run(line, machine, self.inboxes.clone(), begun));
        Ok(())
    }

    async fn connect(&mut self, channel: Channel<Msg>, reply: ChannelOpenHandle, handle: Handle, to: Endpoint) {
        let (Some(machine), Ok(slot)) = (self.machine.clone(), self.slots.clone().try_acquire_owned()) else {
            return reply.reject(ChannelOpenFailure::ResourceShortage).await;
        };
        let task = forwards::connect(channel, reply, handle, machine, self.inboxes.clone(), to);
        self.begin(slot, task);
    }

    /// Passes on what happened to a channel.
    fn tell(&self, channel: ChannelId, event: ToGuest) {
        if let Some(inbox) = self.inboxes.unless_ended(channel) {
            inbox.event(event);
        }
    }

    async fn listen(&mut self, asked: Asked, handle: Handle) -> Option<u16> {
        let machine = self.machine.clone()?;
        let listening = self.listeners.add(asked, handle, machine, self.inboxes.clone(), self.slots.clone());
        listening.await.ok()
    }
}

impl Handler for Visitor {
    type Error = Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Error> {
        Ok(self.enter(user, offer.public_key, offer.algorithm, false).await)
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Error> {
        Ok(self.enter(user, key.public_key, key.algorithm, true).await)
    }

    async fn auth_succeeded(&mut self, _: &mut Session) -> Result<(), Error> {
        self.ticket.entered();
        self.entered.send_replace(true);
        Ok(())
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Error> {
        let Ok(slot) = self.slots.clone().try_acquire_owned() else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let (_, output) = channel.split();
        self.preparing.insert(output.id(), Preparing { output, slot, session: tarn_link::Session::default() });
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
                self.connect(channel, reply, session.handle(), Endpoint::Tcp { host: host.to_owned(), port }).await
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
        self.connect(channel, reply, session.handle(), Endpoint::Unix { path: path.to_owned() }).await;
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
        let Some(prepared) = self.preparing.get_mut(&channel).filter(|_| term.len() <= 256) else {
            return session.channel_failure(channel);
        };
        let modes = modes.iter().map(|(mode, value)| (*mode as u8, *value)).collect();
        let window = window(columns, rows, width, height);
        prepared.session.pty = Some(tarn_link::Pty { term: term.to_owned(), window, modes });
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
        let Some(prepared) = self.preparing.get_mut(&channel) else { return session.channel_failure(channel) };
        let environment = &mut prepared.session.environment;
        let size: usize = environment.iter().map(|(name, value)| name.len() + value.len()).sum();
        if environment.len() >= MAX_VARIABLES || size + name.len() + value.len() > MAX_ENVIRONMENT {
            return session.channel_failure(channel);
        }
        environment.push((name.to_owned(), value.to_owned()));
        session.channel_success(channel)
    }

    async fn agent_request(&mut self, channel: ChannelId, _: &mut Session) -> Result<bool, Error> {
        let Some(prepared) = self.preparing.get_mut(&channel) else { return Ok(false) };
        prepared.session.agent = true;
        Ok(true)
    }

    async fn shell_request(&mut self, channel: ChannelId, session: &mut Session) -> Result<(), Error> {
        self.start(channel, Program::Shell, session)
    }

    async fn exec_request(&mut self, channel: ChannelId, command: &[u8], session: &mut Session) -> Result<(), Error> {
        self.start(channel, Program::Exec(command.to_vec()), session)
    }

    async fn subsystem_request(&mut self, channel: ChannelId, name: &str, session: &mut Session) -> Result<(), Error> {
        match name {
            "sftp" => self.start(channel, Program::Sftp, session),
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
        let window = window(columns, rows, width, height);
        match self.preparing.get_mut(&channel) {
            Some(prepared) => {
                if let Some(pty) = &mut prepared.session.pty {
                    pty.window = window;
                }
            }
            None => self.tell(channel, ToGuest::Resize(window)),
        }
        Ok(())
    }

    async fn signal(&mut self, channel: ChannelId, signal: Sig, _: &mut Session) -> Result<(), Error> {
        self.tell(channel, ToGuest::Signal(sessions::name_of(signal)));
        Ok(())
    }

    async fn data(&mut self, channel: ChannelId, data: &[u8], _: &mut Session) -> Result<(), Error> {
        match self.inboxes.push(channel, data).await {
            true => Ok(()),
            false => Err(Error::Pending),
        }
    }

    fn adjust_window(&mut self, channel: ChannelId, current: u32) -> u32 {
        self.inboxes.next_window(channel, current)
    }

    async fn channel_eof(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Error> {
        if let Some(inbox) = self.inboxes.unless_ended(channel) {
            inbox.eof();
        }
        Ok(())
    }

    async fn channel_close(&mut self, channel: ChannelId, _: &mut Session) -> Result<(), Error> {
        self.preparing.remove(&channel);
        self.inboxes.remove(channel);
        Ok(())
    }

    async fn tcpip_forward(&mut self, address: &str, port: &mut u32, session: &mut Session) -> Result<bool, Error> {
        let Ok(asked_port) = u16::try_from(*port) else { return Ok(false) };
        let asked = Asked::Tcp { address: address.to_owned(), port: asked_port };
        let Some(chosen) = self.listen(asked, session.handle()).await else { return Ok(false) };
        *port = chosen.into();
        Ok(true)
    }

    async fn cancel_tcpip_forward(&mut self, address: &str, port: u32, _: &mut Session) -> Result<bool, Error> {
        let Ok(port) = u16::try_from(port) else { return Ok(false) };
        Ok(self.listeners.remove(&Asked::Tcp { address: address.to_owned(), port }))
    }

    async fn streamlocal_forward(&mut self, path: &str, session: &mut Session) -> Result<bool, Error> {
        Ok(self.listen(Asked::Unix { path: path.to_owned() }, session.handle()).await.is_some())
    }

    async fn cancel_streamlocal_forward(&mut self, path: &str, _: &mut Session) -> Result<bool, Error> {
        Ok(self.listeners.remove(&Asked::Unix { path: path.to_owned() }))
    }
}

/// A size as a terminal can have it.
fn window(columns: u32, rows: u32, width: u32, height: u32) -> Window {
    let short = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    Window { columns: short(columns), rows: short(rows), width: short(width), height: short(height) }
}
