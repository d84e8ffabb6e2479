//! Binds a database to one driver ([`DriverBinding`]): to one installation of the local driver, or to the fake driver,
//! whose replicas share a world. Only databases that several engines can open need it: a SQLite file is locked by its
//! engine.

use tarn_model::Time;
use tarn_model::events::{Event, HostEvent};
use tarn_model::host_binding::{Claimant, DriverBinding, HostBinding, NotBound, Place};
use tarn_store::{Store, Tx, clock, events, examine, installation};

use crate::{Error, Result};

/// Binds the database to an engine that starts, unless it is bound to another one.
pub async fn bind(store: &Store, claimant: Claimant) -> Result<std::result::Result<(), NotBound>> {
    let write = store.write(move |tx| -> Result<_> {
        let bound = installation::driver_binding(tx)?;
        let admitted = DriverBinding::admit(bound.as_ref(), &claimant, tx.now());
        if admitted.is_ok() {
            match &claimant {
                Claimant::Host(place) => save_alive(tx, place)?,
                Claimant::Fake if bound.is_none() => installation::set_driver_binding(tx, &DriverBinding::Fake)?,
                Claimant::Fake => {}
            }
        }
        Ok(admitted)
    });
    write.await
}

/// What is known of a database before anything in it is changed, whichever schema it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which driver it is bound to.
    pub bound: Option<DriverBinding>,
    /// The addresses from which engines use it.
    pub users: Vec<String>,
    /// The time of its server.
    pub now: Time,
}

/// Examines a database on a server that was opened for reading.
pub async fn find(store: &Store) -> Result<Found> {
    let read = store.read(|tx| Ok::<_, tarn_store::Error>((examine::driver_binding(tx)?, tx.now())));
    let (bound, now) = read.await?;
    let users = examine::users(store).await?;
    // Engines go by the clock of the server. By a wrong clock of this host a running one would seem dead.
    Ok(Found { bound, users, now: clock::server_time(store).await?.unwrap_or(now) })
}

/// Says that the engine is alive. Returns `false` when the database was bound to another one meanwhile, so that the
/// engine must stop.
pub async fn stay_bound(store: &Store, claimant: Claimant) -> Result<bool> {
    let Claimant::Host(place) = claimant else {
        let bound = store.read(installation::driver_binding).await.map_err(Error::from)?;
        return Ok(!matches!(bound, Some(DriverBinding::Host(_))));
    };
    let write = store.write(move |tx| -> Result<bool> {
        let is_ours = is_bound_to(tx, &place)?;
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
        if is_bound_to(tx, &place)? {
            let stopped = HostBinding { place: place.clone(), seen: None };
            installation::set_driver_binding(tx, &DriverBinding::Host(stopped))?;
        }
        Ok(())
    });
    write.await
}

/// Binds the database to another installation, for an operator whose earlier one is lost. Returns the earlier binding.
/// It is refused while the engine of that says that it is alive.
pub async fn adopt(store: &Store, place: Place) -> Result<std::result::Result<Option<DriverBinding>, NotBound>> {
    let write = store.write(move |tx| -> Result<_> {
        let bound = installation::driver_binding(tx)?;
        if let Some(bound) = &bound
            && let Err(alive) = bound.check_replaceable(tx.now())
        {
            return Ok(Err(alive));
        }
        let earlier = bound.as_ref().map(|bound| match bound {
            DriverBinding::Host(bound) => bound.place.installation.clone(),
            DriverBinding::Fake => "fake".to_owned(),
        });
        let own = HostBinding { place: place.clone(), seen: None };
        installation::set_driver_binding(tx, &DriverBinding::Host(own))?;
        let adopted = HostEvent::Adopted { installation: place.installation.clone(), earlier };
        tx.record(events::ENGINE, Event::Host("machine".to_owned(), adopted))?;
        Ok(Ok(bound))
    });
    write.await
}

fn is_bound_to(tx: &mut Tx<'_>, place: &Place) -> Result<bool> {
    let bound = installation::driver_binding(tx)?;
    Ok(matches!(bound, Some(DriverBinding::Host(bound)) if bound.place == *place))
}

fn save_alive(tx: &mut Tx<'_>, place: &Place) -> Result<()> {
    let binding = DriverBinding::Host(HostBinding::alive(place.clone(), tx.now()));
    installation::set_driver_binding(tx, &binding).map_err(Error::from)
}
