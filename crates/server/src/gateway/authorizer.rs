//! Authorizes SSH logins: which user a key belongs to, and which instance the login name means.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use tarn_control::Control;
use tarn_control::operations::gateway::{self, LoginAccess, LoginMatch};
use tarn_model::ids::InstanceId;
use tarn_ssh::{Authorizer, Denied, Login, Target};

/// Authorizes logins through the control plane.
pub(super) struct ControlAuthorizer {
    control: Control,
}

impl ControlAuthorizer {
    pub(super) fn new(control: Control) -> Self {
        ControlAuthorizer { control }
    }

    async fn find_target(&self, login: Login<'_>) -> Result<Arc<dyn Target>, Denied> {
        let (control, fingerprint) = (&self.control, &login.key.fingerprint);
        let found = gateway::find(control, login.user, fingerprint).await.map_err(|error| {
            tracing::error!(%error, cause = ?error.cause, "a login could not be decided");
            Denied
        })?;
        match found.ok_or(Denied)? {
            LoginMatch::One(found) => {
                // Watched first: access that ends from here on ends the connection.
                let access = login.proven.then(|| gateway::hold_access(control, &found, fingerprint, login.from));
                if login.proven
                    && let Err(error) = gateway::record(control, &found, fingerprint, login.from).await
                {
                    // A database that cannot be written must not lock users out; the log keeps the record.
                    let (user, instance, from) = (&found.user, &found.instance, login.from);
                    tracing::error!(%error, %user, %instance, %from, fingerprint, "a login could not be recorded");
                }
                Ok(Arc::new(InstanceTarget { control: control.clone(), id: found.instance, access }))
            }
            // The key opens each of these instances, so its owner may see their names.
            LoginMatch::Ambiguous(message) => Ok(Arc::new(AmbiguousLogin { message })),
        }
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
