//! The hold on the files of objects, while a backup needs them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_objects::files::{BackupHold, HoldAttempt, HoldRequest, RENEW_INTERVAL};
use tokio::task::JoinHandle;

use crate::failure::{Failure, Result};

/// The number of tries to take the hold, and the pause between them: removals that were in progress end in moments, and
/// no new ones begin.
const HOLD_TRIES: u32 = 2400;
const HOLD_PAUSE: Duration = Duration::from_millis(25);

/// The hold on the files of objects, which a task renews.
pub(super) struct Hold {
    hold: Option<Arc<BackupHold>>,
    renewal: Option<JoinHandle<()>>,
    lost: Arc<Mutex<Option<std::io::Error>>>,
}

impl Hold {
    /// Waits for the hold.
    pub(super) async fn take(objects: &Path) -> Result<Hold> {
        let lost = Arc::new(Mutex::new(None));
        if !objects.is_dir() {
            return Ok(Hold { hold: None, renewal: None, lost });
        }
        let failed = |e| Failure::with_cause("cannot hold the files of objects", e);
        let mut request = HoldRequest::open(objects).map_err(failed)?;
        for _ in 0..HOLD_TRIES {
            request = match request.try_take().map_err(failed)? {
                HoldAttempt::Taken(hold) => {
                    let hold = Arc::new(hold);
                    let renewal = Some(tokio::spawn(renew_forever(hold.clone(), lost.clone())));
                    return Ok(Hold { hold: Some(hold), renewal, lost });
                }
                HoldAttempt::OtherBackup(_) => {
                    return Err(Failure(
                        "another backup of this installation is being made; try again when it is complete".to_owned(),
                    ));
                }
                HoldAttempt::Removals(request) => request,
            };
            tokio::time::sleep(HOLD_PAUSE).await;
        }
        let seconds = (HOLD_PAUSE * HOLD_TRIES).as_secs();
        Err(Failure(format!(
            "the engine removes files of objects for more than {seconds} s; find out why its disk is that slow, and try \
             again"
        )))
    }

    /// Ends the hold. Fails if it was lost in between.
    pub(super) fn release(mut self) -> Result<()> {
        if let (Some(error), _) | (None, Some(Err(error))) =
            (self.lost.lock().take(), self.hold.take().map(|hold| hold.renew()))
        {
            return Err(Failure::with_cause("the backup cannot be completed", error));
        }
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(renewal) = self.renewal.take() {
            renewal.abort();
        }
    }
}

async fn renew_forever(hold: Arc<BackupHold>, lost: Arc<Mutex<Option<std::io::Error>>>) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        if let Err(error) = hold.renew() {
            lost.lock().get_or_insert(error);
        }
    }
}
