//! Binds a database to one installation of the local driver ([`HostBinding`]). Only databases that several engines can
//! open need it: a SQLite file is locked by its engine.

use tarn_model::events::{Event, HostEvent};
use tarn_model::host_binding::{HostBinding, NotBound, Place};
use tarn_store::{Store, Tx, events, installation};

use crate::{Error, Result};

/// Binds the database to the place of an engine that starts, unless it is bound to another one.
pub async fn bind(store: &Store, place: Place) -> Result<std::result::Result<(), NotBound>> {
    let write = store.write(move |tx| -> Result<_> {
        let admitted = HostBinding::admit(installation::host_binding(tx)?.as_ref(), &place, tx.now());
        if admitted.is_ok() {
            save_alive(tx, &place)?;
        }
        Ok(admitted)
    });
    write.await
}

/// Returns whether an engine at `place` could bind the database. Changes nothing.
pub async fn check(store: &Store, place: Place) -> Result<std::result::Result<(), NotBound>> {
    let read = store
        .read(|tx| -> Result<_> { Ok(HostBinding::admit(installation::host_binding(tx)?.as_ref(), &place, tx.now())) });
    read.await
}

/// Says that the engine is alive. Returns `false` when the database was bound to another place meanwhile, so that the
/// engine must stop.
pub async fn stay_bound(store: &Store, place: Place) -> Result<bool> {
    let write = store.write(move |tx| -> Result<bool> {
        let is_ours = installation::host_binding(tx)?.is_some_and(|bound| bound.place == place);
        if is_ours {
            save_alive(tx, &place)?;
        }
        Ok(is_ours)
    });
    write.await
}

/// Says that the engine stops in order, so that its data directory may be used elsewhere at once.
pub async fn say_stopped(store: &Store, place: Place) -> Result<()> {
    let write = store.write(move |tx| -> Result<()> {
        if installation::host_binding(tx)?.is_some_and(|bound| bound.place == place) {
            installation::set_host_binding(tx, &HostBinding { place: place.clone(), seen: None })?;
        }
        Ok(())
    });
    write.await
}

/// Returns whether [`adopt`] would be refused now. Changes nothing.
pub async fn check_adoption(store: &Store) -> Result<std::result::Result<(), NotBound>> {
    let read = store.read(|tx| -> Result<_> {
        Ok(installation::host_binding(tx)?.map_or(Ok(()), |bound| bound.check_replaceable(tx.now())))
    });
    read.await
}

/// Binds the database to another installation, for an operator whose earlier one is lost. Returns the id of the earlier
/// one. It is refused while an engine of that is alive.
pub async fn adopt(store: &Store, place: Place) -> Result<std::result::Result<Option<String>, NotBound>> {
    let write = store.write(move |tx| -> Result<_> {
        let bound = installation::host_binding(tx)?;
        if let Some(bound) = &bound
            && let Err(alive) = bound.check_replaceable(tx.now())
        {
            return Ok(Err(alive));
        }
        let earlier = bound.map(|bound| bound.place.installation);
        installation::set_host_binding(tx, &HostBinding { place: place.clone(), seen: None })?;
        let adopted = HostEvent::Adopted { installation: place.installation.clone(), earlier: earlier.clone() };
        tx.record(events::ENGINE, Event::Host("machine".to_owned(), adopted))?;
        Ok(Ok(earlier))
    });
    write.await
}

fn save_alive(tx: &mut Tx<'_>, place: &Place) -> Result<()> {
    let binding = HostBinding::alive(place.clone(), tx.now());
    installation::set_host_binding(tx, &binding).map_err(Error::from)
}
