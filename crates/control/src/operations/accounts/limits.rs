//! Limits of organizations and users: what administrators set and see, and the check before anything is accepted.

use tarn_base::Edit;
use tarn_model::events::{Event, ScopeEvent};
use tarn_model::ids::OrgId;
use tarn_model::limits::{Amounts, Limits, MAX_UNEXAMINED};
use tarn_store::{Tx, limits, line};

use super::admin::account_scope;
use crate::page;
use crate::{Caller, Control, Error, Result};

/// The highest limit; sums of such numbers do not overflow.
const MAX_LIMIT: u64 = 1 << 60;

/// The limits of an organization, or of a user without one, and what counts against them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsView {
    /// The organization or user.
    pub scope: String,
    /// The limits that were set for it.
    pub own: Limits,
    /// The effective limits: its own, and those of the configuration for the rest.
    pub limits: Limits,
    /// What counts against the limits.
    pub used: Amounts,
}

/// The limits to change; a cleared one returns to the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LimitsEdit {
    pub instances: Edit<u64>,
    pub cpu_milli: Edit<u64>,
    pub gpus: Edit<u64>,
    pub volume_gb: Edit<u64>,
    pub object_bytes: Edit<u64>,
    /// Zero is no limit.
    pub waiting: Edit<u64>,
    pub job_bytes: Edit<u64>,
}

impl LimitsEdit {
    fn apply_to(self, own: Limits) -> Limits {
        Limits {
            instances: self.instances.apply_to(own.instances),
            cpu_milli: self.cpu_milli.apply_to(own.cpu_milli),
            gpus: self.gpus.apply_to(own.gpus),
            volume_gb: self.volume_gb.apply_to(own.volume_gb),
            object_bytes: self.object_bytes.apply_to(own.object_bytes),
            waiting: self.waiting.apply_to(own.waiting),
            job_bytes: self.job_bytes.apply_to(own.job_bytes),
        }
    }

    fn check_bounds(&self) -> Result<()> {
        let Self { instances, cpu_milli, gpus, volume_gb, object_bytes, waiting, job_bytes } = *self;
        let all = [instances, cpu_milli, gpus, volume_gb, object_bytes, waiting, job_bytes];
        if all.iter().any(|edit| matches!(edit, Edit::Set(limit) if *limit > MAX_LIMIT)) {
            Err(Error::invalid("invalid_limit", "the limit is too high; use null to remove it"))
        } else {
            Ok(())
        }
    }
}

/// Returns the limits of an organization, or of a user without one, by id.
pub async fn info(control: &Control, caller: &Caller, of: &str) -> Result<LimitsView> {
    caller.must_administer()?;
    let read = control.store().read(|tx| -> Result<LimitsView> {
        let scope = account_scope(tx, of)?;
        limits_view(control, tx, scope)
    });
    read.await
}

/// Lists all scopes with limits of their own, in the order of the ids, after this one.
pub async fn list(control: &Control, caller: &Caller, after: &str, limit: Option<u32>) -> Result<Vec<LimitsView>> {
    caller.must_administer()?;
    let limit = page::limit(limit)?;
    let read = control.store().read(|tx| -> Result<Vec<LimitsView>> {
        let scopes = limits::list(tx, after, limit)?;
        scopes.into_iter().map(|scope| limits_view(control, tx, scope)).collect()
    });
    read.await
}

/// Changes some limits. Existing objects stay, even if they exceed a new limit.
pub async fn edit(control: &Control, caller: &Caller, of: &str, edit: LimitsEdit) -> Result<LimitsView> {
    caller.must_administer()?;
    edit.check_bounds()?;
    change_limits(control, caller, of, move |own| edit.apply_to(own)).await
}

/// Removes all limits of a scope; those of the configuration apply again.
pub async fn clear(control: &Control, caller: &Caller, of: &str) -> Result<LimitsView> {
    caller.must_administer()?;
    change_limits(control, caller, of, |_| Limits::default()).await
}

async fn change_limits(
    control: &Control,
    caller: &Caller,
    of: &str,
    change: impl Fn(Limits) -> Limits + Send + Sync + 'static,
) -> Result<LimitsView> {
    let of = of.to_owned();
    let write = control.write(caller, move |tx| {
        let scope = account_scope(tx, &of)?;
        let before = limits::get(tx, &scope)?;
        let after = change(before);
        if after == before {
            return Ok(scope);
        }
        limits::set(tx, &scope, &after)?;
        tx.record(&scope, Event::Scope(scope.clone(), ScopeEvent::LimitsChanged { before, after }))?;
        Ok(scope)
    });
    let scope: String = write.await?;
    control.store().read(|tx| limits_view(control, tx, scope.clone())).await
}

/// Returns the limits of a scope and what counts against them.
pub(in crate::operations) fn limits_view(control: &Control, tx: &mut Tx<'_>, scope: String) -> Result<LimitsView> {
    let objects = scope.parse::<OrgId>().ok().and_then(|org| control.objects().quota_bytes(&org));
    let configured = Limits { object_bytes: objects, ..control.settings().limits };
    let own = limits::get(tx, &scope)?;
    let used = limits::used(tx, &scope)?;
    Ok(LimitsView { scope, own, limits: own.or(configured), used })
}

/// Refuses what would exceed the limits of a scope. The check runs in the transaction that accepts the call, so that of
/// two calls with room for one only one succeeds.
pub(in crate::operations) fn check_limits(
    tx: &mut Tx<'_>,
    defaults: &Limits,
    scope: &str,
    more: &Amounts,
) -> Result<()> {
    let allowed = limits::get(tx, scope)?.or(*defaults);
    admit(tx, &allowed, scope, more)
}

/// Refuses a claim that would exceed the limits of its scope, or of whose scope as many wait as may wait.
pub(in crate::operations) fn check_claim(
    tx: &mut Tx<'_>,
    defaults: &Limits,
    scope: &str,
    more: &Amounts,
) -> Result<()> {
    let allowed = limits::get(tx, scope)?.or(*defaults);
    admit(tx, &allowed, scope, more)?;
    let Some(limit) = allowed.waiting() else { return Ok(()) };
    let counted = u32::try_from(limit.saturating_add(MAX_UNEXAMINED)).unwrap_or(u32::MAX);
    let (waiting, in_line) = line::lengths_of(tx, scope, counted)?;
    Ok(allowed.admit_claim(scope, waiting, in_line)?)
}

fn admit(tx: &mut Tx<'_>, allowed: &Limits, scope: &str, more: &Amounts) -> Result<()> {
    // What is used is read only for the limits that matter here.
    let allowed = allowed.relevant_to(more);
    if allowed.is_empty() {
        return Ok(());
    }
    Ok(allowed.admit(scope, &limits::used(tx, scope)?, more)?)
}
