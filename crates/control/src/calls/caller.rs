//! The authenticated caller of an operation.

use tarn_model::ids::ApiKeyId;
use tarn_model::users::{Owner, User};

use crate::{Error, Kind, Result};

/// The authenticated user and the API key of a call.
#[derive(Clone, Debug)]
pub struct Caller {
    pub user: User,
    pub key: ApiKeyId,
    /// Present if the call must take effect at most once.
    pub idempotency: Option<Idempotency>,
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
