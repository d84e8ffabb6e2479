//! What callers do with volumes.
//!
//! Start reading at [`create`].

mod attach;
mod pool;

use tarn_model::access::Action;
use tarn_model::events::{Event, VolumeEvent};
use tarn_model::ids::VolumeId;
use tarn_model::limits::Amounts;
use tarn_model::requests::{Request, RequestKind, RequestType};
use tarn_model::storage::{Attachment, MAX_SIZE_GB, Volume, VolumeState};
use tarn_model::{Money, Refused, names};
use tarn_store::{Tx, attachments, requests, storage};

use super::{Accepted, free_name, limits, request_owner, whose};
use crate::explain::Explainer;
use crate::page::{self, cut, decode_cursor};
use crate::requests::{start_completed, start_request};
use crate::{Caller, Control, Error, Listing, Page, Result};

use pool::Pool;

pub use attach::{attach, detach};

/// The volume to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewVolume {
    /// The size in gigabytes of 10^9 bytes.
    pub size_gb: u64,
    /// Generated when absent.
    pub name: Option<String>,
    /// Refuses to destroy the volume.
    pub deletion_protection: bool,
}

/// The changes to a volume; absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeEdit {
    pub name: Option<String>,
    /// The new size; a volume can only grow.
    pub size_gb: Option<u64>,
    /// Refuses to destroy the volume.
    pub deletion_protection: Option<bool>,
}

/// A volume with everything that is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeView {
    pub volume: Volume,
    /// The clusters it is attached to.
    pub attachments: Vec<Attachment>,
    /// How many bytes were used when last observed; `None` while unknown.
    pub used_bytes: Option<u64>,
    /// The hourly price.
    pub hourly_rate: Money,
    /// What it waits for, or why it failed.
    pub explanation: Option<String>,
}

/// Accepts a new volume.
pub async fn create(control: &Control, caller: &Caller, new: NewVolume) -> Result<Accepted<(), VolumeId>> {
    if !control.driver().capabilities().volumes {
        let message = format!("the {} driver cannot create volumes", control.driver().name());
        return Err(Error::invalid("volumes_unsupported", message));
    }
    if let Some(name) = &new.name {
        names::check_new(name)?;
    }
    check_volume_size(new.size_gb)?;
    let (me, limit) = (caller.clone(), control.settings().work_deadline);
    let (pool, defaults) = (Pool::observe_pool(control).await?, control.settings().limits);
    let write = control.write(caller, move |tx| {
        let (now, owner) = (tx.now(), me.user.owner());
        limits::check_limits(tx, &defaults, owner.scope(), &Amounts { volume_gb: new.size_gb, ..Amounts::default() })?;
        pool.check_pool_room(tx, new.size_gb)?;
        let id = VolumeId::fresh(tx.ids());
        let name = match &new.name {
            Some(name) => name.clone(),
            None => free_name(tx, |tx, name| Ok(storage::find(tx, owner.scope(), name)?.is_some()))?,
        };
        let volume = Volume {
            id,
            name,
            owner,
            size_gb: new.size_gb,
            first_size_gb: new.size_gb,
            deletion_protection: new.deletion_protection,
            state: VolumeState::Pending,
            since: now,
            created: now,
            version: 0,
        };
        storage::insert(tx, &volume)?;
        let created = VolumeEvent::Created { name: volume.name.clone(), size_gb: volume.size_gb };
        record_volume_event(tx, &volume, created)?;
        let (owner, kind) = (request_owner(&me, &volume.owner), RequestKind::CreateStorage(volume.id.clone()));
        let request = start_request(tx, owner, kind, limit)?.id;
        let message = format!(
            "Storage {} ({}) of {} GB is being created, request {request}.",
            volume.name, volume.id, volume.size_gb
        );
        Ok(Accepted { cluster: (), volume: volume.id, instances: Vec::new(), request, message })
    });
    write.await
}

/// Lists the volumes of the caller, or of the caller's organization.
pub async fn list(control: &Control, caller: &Caller, listing: Listing) -> Result<Page<VolumeView>> {
    let after = decode_cursor(listing.cursor.as_deref(), VolumeId::PREFIX)?;
    let limit = page::limit(listing.limit)?;
    let read = control.store().read(|tx| -> Result<Page<VolumeView>> {
        let asked = tarn_store::Listing {
            owner: whose(caller, listing.include_org),
            all: listing.all,
            after: after.as_ref().map(|(time, id)| (*time, id.as_str())),
            limit: limit + 1,
        };
        let page = cut(storage::list(tx, &asked)?, limit, |volume| (volume.created, volume.id.to_string()));
        let ids: Vec<&str> = page.items.iter().map(|volume| volume.id.as_str()).collect();
        let held = attachments::of_volumes(tx, &ids)?;
        let (mut items, mut explainer) = (Vec::with_capacity(page.items.len()), Explainer::new(control));
        for volume in page.items {
            let on = held.iter().filter(|held| held.volume == volume.id).cloned().collect();
            items.push(volume_view(control, &mut explainer, tx, volume, on)?);
        }
        Ok(Page { items, next_cursor: page.next_cursor })
    });
    read.await
}

/// Returns one volume.
pub async fn info(control: &Control, caller: &Caller, volume: &str) -> Result<VolumeView> {
    let read = control.store().read(|tx| -> Result<VolumeView> {
        let volume = find_volume(tx, caller, volume)?;
        let on = attachments::of_volume(tx, &volume.id)?;
        volume_view(control, &mut Explainer::new(control), tx, volume, on)
    });
    read.await
}

/// Changes the name and the deletion protection immediately, and begins to grow the volume.
pub async fn edit(
    control: &Control,
    caller: &Caller,
    volume: &str,
    edit: VolumeEdit,
) -> Result<Accepted<(), VolumeId>> {
    if edit == VolumeEdit::default() {
        let message = "nothing to change: set tp_storage_name, size_gb or deletion_protection";
        return Err(Error::invalid("nothing_to_change", message));
    }
    if let Some(name) = &edit.name {
        names::check_new(name)?;
    }
    let (me, asked, limit) = (caller.clone(), volume.to_owned(), control.settings().work_deadline);
    let (renamed, defaults) = (edit.name.is_some(), control.settings().limits);
    let pool = match edit.size_gb {
        Some(_) => Some(Pool::observe_pool(control).await?),
        None => None,
    };
    let write = control.write(caller, move |tx| {
        let (now, mut volume) = (tx.now(), find_volume(tx, &me, &asked)?);
        if matches!(volume.state, VolumeState::Destroying | VolumeState::Destroyed) {
            return Err(Refused::StorageGone.into());
        }
        if volume.deletion_protection && edit.deletion_protection == Some(false) {
            me.must_be_allowed(tx, Action::UnprotectVolume, &volume.owner, &asked)?;
        }
        let before = volume.clone();
        if let Some(name) = &edit.name {
            volume.name.clone_from(name);
        }
        volume.deletion_protection = edit.deletion_protection.unwrap_or(volume.deletion_protection);
        let grows = edit.size_gb.filter(|size| *size != volume.size_gb);
        if let Some(to_gb) = grows {
            let more = to_gb.saturating_sub(volume.size_gb);
            volume = volume.begin_grow(to_gb, now)?;
            let growth = Amounts { volume_gb: more, ..Amounts::default() };
            limits::check_limits(tx, &defaults, volume.owner.scope(), &growth)?;
            if let Some(pool) = pool {
                pool.check_pool_room(tx, more)?;
            }
        }
        if volume == before {
            // The last edit has made the volume what this call asks for.
            let message = format!("Storage {} was changed.", volume.id);
            let request = match requests::last_completed_of_volume(tx, &volume.id, RequestType::StorageEdit)? {
                Some(last) => last,
                None => {
                    let kind = RequestKind::EditStorage(volume.id.clone());
                    start_completed(tx, request_owner(&me, &volume.owner), kind, &message)?
                }
            };
            return Ok(Accepted { cluster: (), volume: volume.id, instances: Vec::new(), request, message });
        }
        storage::save(tx, &volume)?;
        let (name, deletion_protection) = (volume.name.clone(), volume.deletion_protection);
        record_volume_event(tx, &volume, VolumeEvent::Edited { name, deletion_protection, grows_to_gb: grows })?;
        let (owner, kind) = (request_owner(&me, &volume.owner), RequestKind::EditStorage(volume.id.clone()));
        let message = match grows {
            Some(to_gb) => format!("Storage {} is growing to {to_gb} GB.", volume.id),
            None => format!("Storage {} was changed.", volume.id),
        };
        let request = match grows {
            Some(_) => start_request(tx, owner, kind, limit)?.id,
            None => start_completed(tx, owner, kind, &message)?,
        };
        Ok(Accepted { cluster: (), volume: volume.id, instances: Vec::new(), request, message })
    });
    let accepted = write.await?;
    if renamed {
        // The name of the volume is part of the access configuration of nodes.
        control.memory.access_changed.notify_one();
    }
    Ok(accepted)
}

/// Begins to destroy a volume with its data.
pub async fn destroy(control: &Control, caller: &Caller, volume: &str) -> Result<Accepted<(), VolumeId>> {
    let (me, asked, limit) = (caller.clone(), volume.to_owned(), control.settings().work_deadline);
    let write = control.write(caller, move |tx| {
        let (now, volume) = (tx.now(), find_volume(tx, &me, &asked)?);
        me.must_be_allowed(tx, Action::DestroyVolume, &volume.owner, &asked)?;
        let on = attachments::of_volume(tx, &volume.id)?;
        let volume = volume.begin_destroy(&on, now)?;
        storage::save(tx, &volume)?;
        record_volume_event(tx, &volume, VolumeEvent::DestroyBegun { name: volume.name.clone() })?;
        let (owner, kind) = (request_owner(&me, &volume.owner), RequestKind::DestroyStorage(volume.id.clone()));
        let request = start_request(tx, owner, kind, limit)?.id;
        let message = format!("Storage {} ({}) is being destroyed, request {request}.", volume.name, volume.id);
        Ok(Accepted { cluster: (), volume: volume.id, instances: Vec::new(), request, message })
    });
    write.await
}

/// Returns the hourly price of a volume.
pub fn quote(control: &Control, size_gb: u64) -> Result<Money> {
    check_volume_size(size_gb)?;
    Ok(Money::hourly_for_gb(control.prices().storage_gb_month, size_gb))
}

/// Finds a volume by its id.
pub(super) fn find_volume(tx: &mut Tx<'_>, caller: &Caller, asked: &str) -> Result<Volume> {
    let id: VolumeId = asked.parse()?;
    let volume = storage::get(tx, &id)?.ok_or_else(|| Error::not_found("storage", asked))?;
    caller.must_own(&volume.owner, "storage", asked)?;
    Ok(volume)
}

pub(super) fn record_volume_event(tx: &mut Tx<'_>, volume: &Volume, event: VolumeEvent) -> Result<()> {
    Ok(tx.record(volume.owner.scope(), Event::Volume(volume.id.clone(), event))?)
}

fn check_volume_size(size_gb: u64) -> Result<()> {
    if (1..=MAX_SIZE_GB).contains(&size_gb) {
        Ok(())
    } else {
        Err(Error::invalid("invalid_size", format!("the size must be 1 to {MAX_SIZE_GB} GB")))
    }
}

fn volume_view(
    control: &Control,
    explainer: &mut Explainer<'_>,
    tx: &mut Tx<'_>,
    volume: Volume,
    attachments: Vec<Attachment>,
) -> Result<VolumeView> {
    let explanation = match &volume.state {
        VolumeState::Failed { reason, .. } => Some(format!("Failed at {}: {reason}", volume.since)),
        VolumeState::Destroyed => None,
        VolumeState::Ready if !attachments.iter().any(Attachment::is_busy) => None,
        VolumeState::Pending
        | VolumeState::Creating
        | VolumeState::Ready
        | VolumeState::Resizing { .. }
        | VolumeState::Destroying => {
            let open: Vec<Request> = requests::open_of_volume(tx, &volume.id)?;
            explainer.explain_object(tx, &open, volume.since)?
        }
    };
    let hourly_rate = Money::hourly_for_gb(control.prices().storage_gb_month, volume.size_gb);
    let used_bytes =
        control.memory.volume_usage.used_bytes(&volume.id).filter(|_| volume.state != VolumeState::Destroyed);
    Ok(VolumeView { volume, attachments, used_bytes, hourly_rate, explanation })
}
