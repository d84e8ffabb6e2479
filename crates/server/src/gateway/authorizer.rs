//! Who enters, and which instance he gets.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use tarn_control::Control;
use tarn_control::operations::gateway::{self, LoginMatch};
use tarn_model::ids::InstanceId;
use tarn_ssh::{Authorizer, Denied, Login, Target};

/// Asks the control plane.
pub(super) struct Gateway {
    control: Control,
}

impl Gateway {
    pub(super) fn new(control: Control) -> Self {
        Gateway { control }
    }

    async fn admit(&self, login: Login<'_>) -> Result<Arc<dyn Target>, Denied> {
        let (control, fingerprint) = (&self.control, &login.key.fingerprint);
        let found = gateway::find(control, login.user, fingerprint).await.map_err(|error| {
            tracing::error!(%error, cause = ?error.cause, "a login could not be decided");
            Denied
        })?;
        match found.ok_or(Denied)? {
            LoginMatch::One(found) => {
                if login.proven
                    && let Err(error) = gateway::record(control, &found, fingerprint, login.from).await
                {
                    // A database that takes nothing must not lock people out; the log keeps what it could not.
                    let (user, instance, from) = (&found.user, &found.instance, login.from);
                    tracing::error!(%error, %user, %instance, %from, fingerprint, "a login could not be recorded");
                }
                Ok(Arc::new(Instance { control: control.clone(), id: found.instance }))
            }
            // The key is good for each of them, so its owner may be told.
            LoginMatch::Ambiguous(words) => Ok(Arc::new(Nothing { words })),
        }
    }
}

impl Authorizer for Gateway {
    fn authorize<'a>(&'a self, login: Login<'a>) -> BoxFuture<'a, Result<Arc<dyn Target>, Denied>> {
        Box::pin(async move {
            let admitted = self.admit(login).await;
            let outcome = match (&admitted, login.proven) {
                (Ok(_), true) => Some("entered"),
                (Err(Denied), _) => Some("refused"),
                (Ok(_), false) => None,
            };
            if let Some(outcome) = outcome {
                metrics::counter!("tarn_ssh_logins_total", "outcome" => outcome).increment(1);
            }
            admitted
        })
    }
}

/// One instance.
struct Instance {
    control: Control,
    id: InstanceId,
}

impl Target for Instance {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn tarn_link::Stream>>> {
        Box::pin(async { gateway::dial(&self.control, &self.id).await.map_err(io::Error::other) })
    }
}

/// No instance, but words that say why.
struct Nothing {
    words: String,
}

impl Target for Nothing {
    fn dial(&self) -> BoxFuture<'_, io::Result<Box<dyn tarn_link::Stream>>> {
        Box::pin(async { Err(io::Error::other(self.words.clone())) })
    }
}
