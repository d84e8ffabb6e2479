//! The access of a caller for as long as something is open: a socket, a long poll or a transfer.

use std::io;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use tarn_model::ids::ApiKeyId;
use tarn_model::users::User;

use crate::in_memory::access_holds::{AccessHolds, HoldGuard};
use crate::{Caller, Control, Error, Result};

/// The holds of all callers of this process.
pub(crate) type HeldCallers = AccessHolds<HeldCaller, AccessEnd>;

/// A caller that has something open.
pub(crate) struct HeldCaller {
    pub(crate) key: ApiKeyId,
    user: User,
}

/// Why the access of a caller ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessEnd {
    KeyRevoked,
    UserDisabled,
    OrganizationChanged,
}

impl HeldCaller {
    /// Returns why the access ended, given the user whom the key belongs to now.
    pub(crate) fn access_end(&self, now: Option<&User>) -> Option<AccessEnd> {
        match now {
            None => Some(AccessEnd::KeyRevoked),
            Some(user) if user.disabled => Some(AccessEnd::UserDisabled),
            Some(user) if user.org != self.user.org => Some(AccessEnd::OrganizationChanged),
            Some(_) => None,
        }
    }
}

impl From<AccessEnd> for Error {
    fn from(end: AccessEnd) -> Self {
        match end {
            AccessEnd::KeyRevoked => Error::invalid_key(),
            AccessEnd::UserDisabled => Error::user_disabled(),
            AccessEnd::OrganizationChanged => Error::access_changed(),
        }
    }
}

/// Tells when the access of a caller ends, within seconds.
pub struct HeldAccess(HoldGuard<HeldCaller, AccessEnd>);

impl Control {
    /// Watches the access of a caller until the result is dropped.
    pub fn hold_access(&self, caller: &Caller) -> HeldAccess {
        let holder = HeldCaller { key: caller.key.clone(), user: caller.user.clone() };
        HeldAccess(self.memory.held_callers.add(holder))
    }
}

impl HeldAccess {
    /// Waits until the access has ended, and returns the refusal.
    pub async fn ended(&self) -> Error {
        self.0.ended().await.into()
    }

    /// Runs `work` unless the access ends before it is done; then `work` is dropped.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            refused = self.ended() => Err(refused),
            done = work => Ok(done),
        }
    }

    /// Breaks a body off with an error when the access ends.
    pub(crate) fn guard_body(
        self,
        body: BoxStream<'static, io::Result<Bytes>>,
    ) -> BoxStream<'static, io::Result<Bytes>> {
        let guarded = stream::unfold((self, body), |(held, mut body)| async move {
            match held.run(body.next()).await {
                Ok(next) => next.map(|piece| (piece, (held, body))),
                Err(refused) => Some((Err(io::Error::other(refused)), (held, stream::empty().boxed()))),
            }
        });
        guarded.boxed()
    }
}
