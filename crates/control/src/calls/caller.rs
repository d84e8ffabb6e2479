//! The authenticated caller of an operation.

use std::net::IpAddr;

use tarn_model::access::{self, Action, Denied, Object, Policy};
use tarn_model::ids::ApiKeyId;
use tarn_model::users::{Owner, User};

use tarn_store::events::Origin;
use tarn_store::{Tx, users};

use super::permitted;
use crate::error::quote_input;
use crate::{Error, Kind, Result};

/// The authenticated user and the API key of a call.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: User,
    pub key: ApiKeyId,
    /// What the operator allows the members of organizations.
    pub policy: Policy,
    /// Present if the call must take effect at most once.
    pub idempotency: Option<Idempotency>,
    /// The address of the client, if the call came through the network.
    pub address: Option<IpAddr>,
    /// The id of the call.
    pub call: Option<String>,
}

/// The `Idempotency-Key` of a call.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// Chosen by the caller: 1 to 255 visible ASCII characters.
    pub key: String,
    /// A hash of method, path and body. The same key with another fingerprint is a conflict.
    pub fingerprint: [u8; 32],
    /// Encrypts the stored outcome. It is derived from the caller's secret, so that the database alone does not reveal
    /// the response.
    pub seal: [u8; 32],
}

impl Caller {
    /// Where the changes of this call come from.
    pub fn origin(&self) -> Origin {
        let (user, key) = (Some(self.user.id.clone()), Some(self.key.to_string()));
        Origin { user, key, address: self.address, call: self.call.clone() }
    }

    /// Refuses a caller whose access has ended or changed since they were authenticated: a call may take long to
    /// arrive, and a socket may stay open for a day.
    pub(crate) fn must_still_hold(&self, tx: &mut Tx<'_>) -> Result<()> {
        match users::holder(tx, &self.key)? {
            None => Err(Error::invalid_key()),
            Some(user) if user.disabled => Err(Error::user_disabled()),
            // What was decided about this call was decided for the user as they were.
            Some(user) if user != self.user => Err(Error::access_changed()),
            Some(_) => Ok(()),
        }
    }

    /// Refuses access to what belongs to another user or organization.
    pub fn must_own(&self, owner: &Owner, what: &str, id: &str) -> Result<()> {
        self.check(Action::Use, owner.into()).map_err(|_| Error::forbidden(what, id))
    }

    /// Refuses all callers except administrators of the engine.
    pub fn must_administer(&self) -> Result<()> {
        self.check(Action::AdministerEngine, Object::Engine).map_err(|_| not_engine_admin())
    }

    /// Refuses an action that the caller may not do to an object that was read in this transaction; `id` is what the
    /// caller calls it.
    pub(crate) fn must_be_allowed<'a>(
        &self,
        tx: &mut Tx<'_>,
        action: Action,
        object: impl Into<Object<'a>>,
        id: &str,
    ) -> Result<()> {
        let object = object.into();
        match self.check(action, object) {
            Ok(()) => Ok(()),
            Err(Denied::NotYours) => Err(permitted::not_yours(tx, action, object, id)?),
            Err(Denied::NotEngineAdmin) => Err(not_engine_admin()),
            Err(Denied::Foreign) => {
                let message = format!("you cannot {} {}: it belongs to someone else", action.name(), quote_input(id));
                Err(Error::new(Kind::Forbidden, "access_denied", message))
            }
        }
    }

    /// Returns whether the caller may do something, for what depends on it without being refused.
    pub(crate) fn is_allowed<'a>(&self, action: Action, object: impl Into<Object<'a>>) -> bool {
        self.check(action, object.into()).is_ok()
    }

    fn check(&self, action: Action, object: Object<'_>) -> std::result::Result<(), Denied> {
        access::check(&self.user, action, object, self.policy)
    }
}

fn not_engine_admin() -> Error {
    Error::new(Kind::Forbidden, "access_denied", "only administrators of this engine may do this")
}
