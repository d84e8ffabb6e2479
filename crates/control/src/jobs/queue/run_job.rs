//! Driving one job from where it is to where it ends, or to where it waits for its turn again. A driver that takes over from one
//! that died begins with the state of the row: whatever was not written down, the guests still have.

use tarn_model::jobs::State;

use super::attend::Attempt;
use super::finish::{self, Turn};
use super::hand::{Hand, is_lost};
use super::{attend, collect};
use crate::Result;

/// Drives a job until there is nothing more to do for it here.
pub(super) async fn drive(hand: Hand) {
    let id = hand.job.id.clone();
    match to_its_end(hand).await {
        Ok(()) => {}
        // Whoever has the lease now goes on from here.
        Err(error) if is_lost(&error) => tracing::debug!(job = %id, "somebody else drives it now"),
        Err(error) => {
            tracing::error!(job = %id, cause = ?error.cause, "a job could not be carried on, and is taken up again: {error}");
        }
    }
}

async fn to_its_end(mut hand: Hand) -> Result<()> {
    match hand.job.state {
        State::Starting | State::Running | State::Stopping(_) => {
            let Attempt { verdict, rest, crew } = attend::attend(&mut hand).await?;
            let turn = finish::attempt(&mut hand, verdict, rest).await?;
            if let Turn::Collect(_) = turn {
                let collected = collect::collect(&hand, collect::Begun::Now).await?;
                finish::job(&mut hand, collected).await?;
            }
            crew.dismiss().await;
            Ok(())
        }
        State::Collecting(_) => {
            let collected = collect::collect(&hand, collect::Begun::Before).await?;
            finish::job(&mut hand, collected).await
        }
        State::Draft | State::Pending | State::Ended(_) => Ok(()),
    }
}
