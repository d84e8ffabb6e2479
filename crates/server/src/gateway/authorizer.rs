//! Authorizes SSH logins: which user a key belongs to, and which instance the login name means.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tarn_base::fair_share::{GroupedPermit, GroupedShare};
use tarn_control::Control;
use tarn_control::operations::gateway::{self, LoginAccess, LoginMatch};
use tarn_model::ids::InstanceId;
use tarn_ssh::{Authorizer, Denied, Login, Target};

/// How many connections may be open at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionLimits {
    pub(super) per_user: usize,
    /// Half of what the gateway admits.
    pub(super) per_organization: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        ConnectionLimits { per_user: 128, per_organization: 256 }
    }
}

/// More than the gateway admits: only the shares are limits here.
const MAX_CONNECTIONS: usize = 1 << 20;

/// How long a connection stays open that leads nowhere, so that its client can read why.
const EXPLANATION_TIME: Duration = Duration::from_secs(10);

/// The group of all connections whose name is not enough. It is not the id of an organization.
const LEADING_NOWHERE: &str = "nowhere";

/// The place of a connection, until it is dropped.
type ConnectionPermit = GroupedPermit<String, String>;

/// Authorizes logins through the control plane.
pub(super) struct ControlAuthorizer {
    control: Control,
    /// The connections of each user, and of each organization or user without one. If the name is not enough, they
    /// count for the key and for [`LEADING_NOWHERE`].
    connections: GroupedShare<String, String>,
}

impl ControlAuthorizer {
    pub(super) fn new(control: Control, limits: ConnectionLimits) -> Self {
        let connections = GroupedShare::new(MAX_CONNECTIONS, limits.per_user, limits.per_organization);
        ControlAuthorizer { control, connections }
    }

    async fn find_target(&self, login: Login<'_>) -> Result<Arc<dyn Target>, Denied> {
        let (control, fingerprint) = (&self.control, &login.key.fingerprint);
        let found = gateway::find(control, login.user, fingerprint).await.map_err(|error| {
            tracing::error!(%error, cause = ?error.cause, "a login could not be decided");
            Denied
        })?;
        match found.ok_or(Denied)? {
            LoginMatch::One(found) => {
                let permit = self.acquire_permit(login, found.user.as_str(), found.scope())?;
                // Watched first: access that ends from here on ends the connection.
                let access = login.proven.then(|| gateway::hold_access(control, &found, fingerprint, login.from));
                if login.proven
                    && let Err(error) = gateway::record(control, &found, fingerprint, login.from).await
                {
                    // A database that cannot be written must not lock users out; the log keeps the record.
                    let (user, instance, from) = (&found.user, &found.instance, login.from);
                    tracing::error!(%error, %user, %instance, %from, fingerprint, "a login could not be recorded");
                }
                let (control, id) = (control.clone(), found.instance);
                Ok(Arc::new(InstanceTarget { control, id, access, _permit: permit }))
            }
            // The key opens each of these instances, so its owner may see their names.
            LoginMatch::Ambiguous(message) => {
                let permit = self.acquire_permit(login, fingerprint, LEADING_NOWHERE)?;
                Ok(Arc::new(AmbiguousLogin { message, _permit: permit }))
            }
        }
    }
}

impl ControlAuthorizer {
    /// Counts a connection for its user and their organization, from whatever address it comes. A key that was only
    /// offered takes no place.
    fn acquire_permit(&self, login: Login<'_>, user: &str, scope: &str) -> Result<Option<ConnectionPermit>, Denied> {
        if !login.proven {
            return Ok(None);
        }
        let permit = self.connections.try_acquire(Some(&user.to_owned()), Some(&scope.to_owned()));
        permit.map(Some).map_err(|used_up| {
            tracing::info!(user, scope, ?used_up, "a login was refused: there are too many SSH connections");
            Denied
        })
    }
}

impl Authorizer for ControlAuthorizer {
    fn authorize<'a>(&'a self, login: Login<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        Box::pin(async move {
            let authorized = self.find_target(login).await;
            let outcome = match (&authorized, login.proven) {
                (Ok(_), true) => Some("entered"),
                (Err(Denied), _) => Some("refused"),
                (Ok(_), false) => None,
            };
            if let Some(outcome) = outcome {
                metrics::counter!("tarn_ssh_logins_total", "outcome" => outcome).increment(1);
            }
            authorized
        })
    }

    fn login_failed(&self, from: SocketAddr) {
        gateway::count_refused(&self.control, from);
    }
}

/// The instance that a login leads to.
struct InstanceTarget {
    control: Control,
    id: InstanceId,
    /// Absent as long as the key was only offered.
    access: Option<LoginAccess>,
    /// For as long as the connection is open.
    _permit: Option<ConnectionPermit>,
}

impl Target for InstanceTarget {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn tarn_link::Stream>>> {
        Box::pin(async { gateway::dial(&self.control, &self.id).await.map_err(io::Error::other) })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            match &self.access {
                Some(access) => access.ended().await,
                None => std::future::pending().await,
            }
        })
    }
}

/// A login name that means several instances; connecting fails with a message that lists them.
struct AmbiguousLogin {
    message: String,
    /// For as long as the connection is open.
    _permit: Option<ConnectionPermit>,
}

impl Target for AmbiguousLogin {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn tarn_link::Stream>>> {
        Box::pin(async { Err(io::Error::other(self.message.clone())) })
    }

    fn ended(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            tokio::time::sleep(EXPLANATION_TIME).await;
            self.message.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use tarn_control::Caller;
    use tarn_control::operations::{clusters, ssh_keys};
    use tarn_control::testing::world;
    use tarn_ssh::Key;
    use tarn_store::testing::DatabaseKind;

    use super::*;

    const ADA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti ada";
    const BEN: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMh4Ck57FfxgjFYG3WuFDJAnwW4aNFB1gwoRNhAAhK4A ben";

    const FEW: ConnectionLimits = ConnectionLimits { per_user: 2, per_organization: 3 };

    /// A user has a number of SSH connections, and so has an organization, also where the name is not enough. Another
    /// user has their own, and a connection that ends makes room.
    #[tokio::test(flavor = "multi_thread")]
    async fn connections_are_limited() {
        let world = world(DatabaseKind::Sqlite).await.unwrap();
        let (ada, ben) = (world.member("ada@x.org", Some("x")).await, world.member("ben@x.org", Some("x")).await);
        // A stranger has saved the keys too, so that the name of their cluster is not enough.
        let eve = world.member("eve@y.org", Some("y")).await;
        for (creator, name) in [(&ada, "box"), (&eve, "lure")] {
            let new =
                clusters::NewCluster { instance_type: "1xCPU".into(), name: Some(name.into()), ..Default::default() };
            clusters::create(&world.control, creator, new).await.unwrap();
        }
        world.settle().await;
        let save = async |caller: &Caller, line: &str| {
            ssh_keys::add(&world.control, caller, line, None).await.unwrap();
            Key { line: line.to_owned(), fingerprint: tarn_model::ssh_keys::parse(line).unwrap().fingerprint }
        };
        let (of_ada, of_ben) = (save(&ada, ADA).await, save(&ben, BEN).await);
        for key in [&of_ada, &of_ben] {
            let fingerprint = key.fingerprint.clone();
            let scope = ada.user.owner().scope().to_owned();
            let prove = world.store.write(move |tx| tarn_store::ssh_keys::save_proof(tx, &fingerprint, &scope));
            prove.await.unwrap();
            save(&eve, &key.line).await;
        }
        let authorizer = ControlAuthorizer::new(world.control.clone(), FEW);
        let from: SocketAddr = "192.0.2.7:4711".parse().unwrap();
        let log_in =
            async |user: &str, key: &Key, proven| authorizer.authorize(Login { user, key, from, proven }).await;
        for name in ["box", "lure"] {
            let mut open = Vec::new();
            for _ in 0..FEW.per_user {
                open.push(log_in(name, &of_ada, true).await.unwrap());
            }
            assert_eq!(log_in(name, &of_ada, true).await.err(), Some(Denied), "{name}");
            assert!(log_in(name, &of_ada, false).await.is_ok(), "a key that is only offered takes no place");
            // Where the name is not enough, the keys of all organizations share their places.
            open.push(log_in(name, &of_ben, true).await.expect("another user has places of their own"));
            assert_eq!(log_in(name, &of_ben, true).await.err(), Some(Denied), "{name}: the organization has no more");
            open.remove(0);
            assert!(log_in(name, &of_ben, true).await.is_ok(), "a connection that ended makes room");
        }
    }

    /// A connection that leads nowhere ends by itself.
    #[tokio::test(start_paused = true)]
    async fn ambiguous_login_ends() {
        let login = AmbiguousLogin { message: "use an id".to_owned(), _permit: None };
        assert_eq!(login.ended().await, "use an id");
    }
}
