//! The authenticated caller of an operation.

use std::net::IpAddr;

use tarn_model::ids::ApiKeyId;
use tarn_model::users::{Owner, User};

use tarn_store::events::Origin;
use tarn_store::{Tx, users};

use crate::{Error, Kind, Result};

/// The authenticated user and the API key of a call.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: User,
    pub key: ApiKeyId,
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
        Origin { key: Some(self.key.clone()), address: self.address, call: self.call.clone() }
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
        if self.user.may_access(owner) { Ok(()) } else { Err(Error::forbidden(what, id)) }
    }

    /// Refuses all callers except administrators of the engine.
    pub fn must_administer(&self) -> Result<()> {
        if self.user.engine_admin {
            Ok(())
        } else {
            Err(Error::new(Kind::Forbidden, "access_denied", "only administrators of this engine may do this"))
        }
    }
}
