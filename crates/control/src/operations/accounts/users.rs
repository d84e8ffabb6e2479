//! What callers see and change of themselves and of their organization.

use tarn_base::Edit;
use tarn_model::Money;
use tarn_model::events::{Event, UserEvent};
use tarn_model::ledger::Account;
use tarn_model::preferences::Preferences;
use tarn_model::users::{Organization, User};
use tarn_store::counts::{self, Counts};
use tarn_store::{ledger, users};

use super::limits::{self, LimitsView};
use crate::operations::scope_of;
use crate::{Caller, Control, Error, Kind, Result};

/// A user with everything that is shown of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserView {
    pub user: User,
    pub org: Option<Organization>,
    /// The balance of the user's scope.
    pub balance: Money,
    /// The number of existing clusters in the user's scope.
    pub clusters: u64,
    /// The number of existing volumes in the user's scope.
    pub volumes: u64,
    /// The hourly price of all of them.
    pub hourly_rate: Money,
    /// The limits of the user's scope, and what counts against them.
    pub limits: LimitsView,
}

/// An organization with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrgView {
    pub org: Organization,
    pub members: Vec<User>,
    /// The balance that the members share.
    pub balance: Money,
}

/// The preferences to change; absent fields stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct PreferencesEdit {
    pub notify_email_cluster_create: Option<bool>,
    pub notify_email_cluster_destroy: Option<bool>,
    pub autopay_enabled: Option<bool>,
    pub balance_warning_threshold: Edit<Money>,
    pub autopay_reload_threshold: Edit<Money>,
}

/// Returns the caller.
pub async fn info(control: &Control, caller: &Caller) -> Result<UserView> {
    let read = control.store().read(|tx| -> Result<UserView> {
        let scope = scope_of(&caller.user);
        let org = caller.user.org.as_ref().map(|id| users::org(tx, id)).transpose()?.flatten();
        let Counts { clusters, hourly_rate: cluster_rate, volumes, volume_gb, .. } = counts::get(tx, scope)?;
        let storage_rate = Money::hourly_for_gb(control.prices().storage_gb_month, volume_gb);
        let balance = ledger::balance(tx, &Account::balance_of(scope))?;
        let hourly_rate = Money::from_micros(cluster_rate.as_micros().saturating_add(storage_rate.as_micros()));
        let limits = limits::limits_view(control, tx, scope.to_owned())?;
        Ok(UserView { user: caller.user.clone(), org, balance, clusters, volumes, hourly_rate, limits })
    });
    read.await
}

/// Returns the preferences of the caller.
pub async fn preferences(control: &Control, caller: &Caller) -> Result<Preferences> {
    control.store().read(|tx| users::preferences(tx, &caller.user.id)).await.map_err(Error::from)
}

/// Changes some preferences of the caller and returns all of them.
pub async fn edit_preferences(control: &Control, caller: &Caller, edit: PreferencesEdit) -> Result<Preferences> {
    let me = caller.clone();
    let write = control.write(caller, move |tx| {
        let before = users::preferences(tx, &me.user.id)?;
        let mut now = before.clone();
        now.notify_email_cluster_create = edit.notify_email_cluster_create.unwrap_or(now.notify_email_cluster_create);
        now.notify_email_cluster_destroy =
            edit.notify_email_cluster_destroy.unwrap_or(now.notify_email_cluster_destroy);
        now.autopay_enabled = edit.autopay_enabled.unwrap_or(now.autopay_enabled);
        now.balance_warning_threshold = edit.balance_warning_threshold.apply_to(now.balance_warning_threshold);
        now.autopay_reload_threshold = edit.autopay_reload_threshold.apply_to(now.autopay_reload_threshold);
        now.check().map_err(|error| Error::invalid("invalid_preferences", error.to_string()))?;
        if now == before {
            return Ok(now);
        }
        users::save_preferences(tx, &me.user.id, &now)?;
        tx.record(scope_of(&me.user), Event::User(me.user.id.clone(), UserEvent::PreferencesChanged {}))?;
        Ok(now)
    });
    write.await
}

/// Returns the organization of the caller.
pub async fn organization(control: &Control, caller: &Caller) -> Result<OrgView> {
    let read = control.store().read(|tx| -> Result<OrgView> {
        let found = caller.user.org.as_ref().map(|id| users::org(tx, id)).transpose()?.flatten();
        let org =
            found.ok_or_else(|| Error::new(Kind::NotFound, "no_organization", "you are not in an organization"))?;
        let members = users::members(tx, &org.id)?;
        let balance = ledger::balance(tx, &Account::balance_of(org.id.as_str()))?;
        Ok(OrgView { org, members, balance })
    });
    read.await
}
