//! The caller of an S3 call: the key that signed it, and where it came from.

use std::net::IpAddr;

use tarn_model::ids::OrgId;
use tarn_store::Tx;
use tarn_store::events::Origin;
use tarn_store::s3_keys::{self, KeyHolder};

use crate::{Error, Objects, Result};

/// Who signed a call. A handle for them refuses every write once their key has ended: the body of a call may take long
/// to arrive.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) access_key: String,
    pub(crate) holder: KeyHolder,
    /// The address of the client, if the call came through the network.
    pub(crate) address: Option<IpAddr>,
    /// The id of the call.
    pub(crate) call: String,
}

impl Caller {
    /// The organization whose objects the key opens.
    pub(crate) fn org(&self) -> &OrgId {
        &self.holder.org
    }

    /// Where the changes of the call come from.
    pub(crate) fn origin(&self) -> Origin {
        let (user, key) = (self.holder.user.clone(), Some(self.access_key.clone()));
        Origin { user, key, address: self.address, call: Some(self.call.clone()) }
    }

    /// Refuses a caller whose key does not work any more. The cache of keys is not asked: this is read in the
    /// transaction that it guards.
    pub(crate) fn must_still_hold(&self, tx: &mut Tx<'_>, objects: &Objects) -> Result<()> {
        let holder = s3_keys::holder(tx, &self.access_key)?;
        if holder.is_some_and(|holder| objects.works_at(&holder, tx.now())) { Ok(()) } else { Err(Error::KeyEnded) }
    }
}
