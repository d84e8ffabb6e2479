//! Authorizes SSH logins: which user a key belongs to, and which instance the login name means.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tarn_base::fair_share::{FairShare, Permit};
use tarn_control::Control;
use tarn_control::operations::gateway::{self, LoginAccess, LoginMatch};
use tarn_model::ids::{InstanceId, UserId};
use tarn_ssh::{Authorizer, Denied, Login, Target};

/// How many connections one user may have open at the same time.
const USER_CONNECTIONS: usize = 128;

/// More than the gateway admits: only the share of a user is a limit here.
const MAX_CONNECTIONS: usize = 1 << 20;

/// Authorizes logins through the control plane.
pub(super) struct ControlAuthorizer {
    control: Control,
    /// The connections of each user.
    users: FairShare<UserId>,
}

impl ControlAuthorizer {
    pub(super) fn new(control: Control) -> Self {
        ControlAuthorizer { control, users: FairShare::new(MAX_CONNECTIONS, USER_CONNECTIONS) }
    }

    async fn find_target(&self, login: Login<'_>) -> Result<Arc<dyn Target>, Denied> {
        let (control, fingerprint) = (&self.control, &login.key.fingerprint);
        let found = gateway::find(control, login.user, fingerprint).await.map_err(|error| {
            tracing::error!(%error, cause = ?error.cause, "a login could not be decided");
            Denied
        })?;
        match found.ok_or(Denied)? {
            LoginMatch::One(found) => {
                let permit = if login.proven { Some(self.acquire_permit(&found.user)?) } else { None };
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
            LoginMatch::Ambiguous(message) => Ok(Arc::new(AmbiguousLogin { message })),
        }
    }
}

impl ControlAuthorizer {
    /// Counts a connection for its user, from whatever address it comes.
    fn acquire_permit(&self, user: &UserId) -> Result<Permit<UserId>, Denied> {
        self.users.try_acquire(user, 1).map_err(|_| {
            tracing::info!(%user, limit = USER_CONNECTIONS, "a login was refused: the user has too many SSH connections");
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
    _permit: Option<Permit<UserId>>,
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
}

impl Target for AmbiguousLogin {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn tarn_link::Stream>>> {
        Box::pin(async { Err(io::Error::other(self.message.clone())) })
    }
}
