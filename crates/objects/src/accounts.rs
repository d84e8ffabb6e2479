//! Accounts: which organizations have object storage. Their access keys are in [`crate::keys`].

use tarn_model::ids::OrgId;
use tarn_store::accounts::{self, Account};
use tarn_store::{Tx, s3_keys};

use crate::{Error, Result};

/// Enables object storage for an organization. Returns whether the account is new.
pub fn enable(tx: &mut Tx<'_>, org: &OrgId) -> Result<(Account, bool)> {
    match accounts::get(tx, org)? {
        Some(account) if account.closing => Err(Error::Closing),
        Some(account) => Ok((account, false)),
        None => {
            accounts::insert(tx, org)?;
            Ok((get(tx, org)?, true))
        }
    }
}

/// Returns the open account of an organization.
pub fn get(tx: &mut Tx<'_>, org: &OrgId) -> Result<Account> {
    match accounts::get(tx, org)? {
        Some(account) if !account.closing => Ok(account),
        Some(_) | None => Err(Error::NotEnabled),
    }
}

/// Disables object storage: the keys become invalid, and the content will be removed. Refused while it holds objects,
/// unless `force` is set. The caller must call [`crate::Objects::forget_keys`] afterwards.
pub fn disable(tx: &mut Tx<'_>, org: &OrgId, force: bool) -> Result<()> {
    let account = get(tx, org)?;
    if account.objects > 0 && !force {
        return Err(Error::HoldsObjects(account.objects));
    }
    s3_keys::end_of_organization(tx, org)?;
    Ok(accounts::close(tx, org)?)
}
