//! Who calls, as the API key tells.

use tarn_model::ids::ApiKeyId;
use tarn_model::users::{Owner, User};

use crate::{Error, Kind, Result};

/// The one who calls, authenticated.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The user behind the key.
    pub user: User,
    /// The key that was used.
    pub key: ApiKeyId,
    /// The caller's wish that this call happens once only.
    pub idempotency: Option<Idempotency>,
}

/// The `Idempotency-Key` of a call.
#[derive(Clone, Debug)]
pub struct Idempotency {
    /// What the caller chose: 1 to 255 visible ASCII characters.
    pub key: String,
    /// A hash of method, path and body; the same key with another one is a conflict.
    pub fingerprint: [u8; 32],
    /// Encrypts the kept outcome; derived from the caller's secret, so that the database alone cannot tell what was answered.
    pub seal: [u8; 32],
}

impl Caller {
    /// Refuses access to what is somebody else's.
    pub fn must_own(&self, owner: &Owner, what: &str, id: &str) -> Result<()> {
        if self.user.may_access(owner) { Ok(()) } else { Err(Error::forbidden(what, id)) }
    }

    /// Refuses everyone but administrators of the engine.
    pub fn must_administer(&self) -> Result<()> {
        match self.user.engine_admin {
            true => Ok(()),
            false => {
                Err(Error::new(Kind::Forbidden, "access_denied", "only administrators of this engine may do this"))
            }
        }
    }
}
