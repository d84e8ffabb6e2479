//! The capacity queue, "the line": what an examination reads, and what it changes. The rule is in `model::line`.
//!
//! One examination decides about the whole line. It is part of the step of a claim, so it is repeated when a runner
//! dies. It wakes the claims that start, each of which examines the line again when it takes its capacity, and the
//! claim whose turn to reserve begins or ends next.

use tarn_model::Time;
use tarn_model::capacity::{self, Inventory};
use tarn_model::ids::RequestId;
use tarn_model::line::{self as rule, Examined, Host, Rules, Start, Waiting};
use tarn_store::{Tx, instances, line};

use crate::Result;

/// How many claims are examined: the oldest of each organization and each amount that is waited for. If there are more,
/// the rest of them wait until it is their turn to reserve.
const MAX_EXAMINED: u32 = 4096;

/// Behind how many claims that start one examination looks, and at how many that are equal. Each claim that starts
/// examines the line again.
const MAX_STARTS: u32 = 64;

/// What was decided about the line.
pub(super) struct Decision {
    starts: Vec<Start>,
    /// Claims that the host can no longer hold. They fail when they are woken.
    hopeless: Vec<RequestId>,
    /// The claim that reserves, and its organization.
    reserving: Option<(RequestId, String)>,
    /// When the line has to be examined again although nothing happened, and the claim that is woken for it.
    again: Option<(RequestId, Time)>,
}

/// Examines the line, and this claim in any case. If it is the turn of a claim to reserve capacity, it does so from now
/// on.
pub(super) fn decide(
    tx: &mut Tx<'_>,
    [installed, present]: [&Inventory; 2],
    me: &RequestId,
    rules: &Rules,
) -> Result<Decision> {
    let (mut reserving, mut again) = (line::reserving(tx)?, None);
    if reserving.is_none() {
        let (now, candidates) = (tx.now(), line::candidates(tx, MAX_EXAMINED)?);
        match rules.next_turn(now, &candidates) {
            Some((candidate, begins)) if begins <= now => {
                let reservation = rules.begin(now);
                line::reserve(tx, candidate, &reservation)?;
                reserving = line::get(tx, &candidate.request)?.map(|claim| (claim, reservation.until));
            }
            Some((candidate, begins)) => again = Some((candidate.request.clone(), begins)),
            None => {}
        }
    }
    if let Some((claim, until)) = &reserving {
        again = Some((claim.place.request.clone(), *until));
    }
    let claim = reserving.map(|(claim, _)| claim);
    let me = line::get(tx, me)?;
    let (waiting, hopeless) = read_waiting(tx, installed, [claim.as_ref(), me.as_ref()])?;
    let reserving = claim.map(|claim| (claim.place.request, claim.place.scope));
    let starts = examine(tx, present, reserving.as_ref().map(|(id, _)| id), waiting, |examined| examined.starts)?;
    Ok(Decision { starts, hopeless, reserving, again })
}

impl Decision {
    /// Returns the GPUs of each node of a claim, if it starts.
    pub(super) fn start_of(&self, request: &RequestId) -> Option<&Vec<Vec<String>>> {
        self.starts.iter().find(|start| start.request == *request).map(|start| &start.gpus)
    }

    /// Wakes the other claims for which something was decided. Returns when this one is woken although nothing happens,
    /// if it has to wait.
    pub(super) fn wake_others(&self, tx: &mut Tx<'_>, me: &RequestId) -> Result<Option<Time>> {
        let now = tx.now();
        let others = self.starts.iter().map(|start| &start.request).chain(&self.hopeless);
        for other in others.filter(|other| *other != me) {
            line::wake_at(tx, other, now)?;
        }
        let starts = self.start_of(me).is_some();
        if let Some((_, scope)) = self.reserving.as_ref().filter(|(id, _)| starts && id == me) {
            line::end_pause(tx, scope)?;
        }
        match &self.again {
            // It leaves the line, so that the next turn is that of another claim.
            Some((id, _)) if id == me && starts => line::wake(tx).map(|()| None).map_err(Into::into),
            Some((id, at)) if id == me => Ok(Some(*at)),
            Some((id, at)) => line::wake_at(tx, id, *at).map(|()| None).map_err(Into::into),
            None => Ok(None),
        }
    }
}

/// Examines the line as it is, without any change, and returns what `read` makes of the result.
pub(crate) fn look<T>(tx: &mut Tx<'_>, inventory: &Inventory, read: impl Fn(Examined<'_>) -> T) -> Result<T> {
    let claim = line::reserving(tx)?.map(|(claim, _)| claim);
    let (waiting, _) = read_waiting(tx, inventory, [claim.as_ref(), None])?;
    examine(tx, inventory, claim.as_ref().map(|claim| &claim.place.request), waiting, read)
}

/// Reads the claims to examine, including those that are examined in any case, and those that the host can never hold.
fn read_waiting(
    tx: &mut Tx<'_>,
    installed: &Inventory,
    certain: [Option<&Waiting>; 2],
) -> Result<(Vec<Waiting>, Vec<RequestId>)> {
    let mut all = line::firsts(tx, MAX_EXAMINED)?;
    for claim in certain.into_iter().flatten() {
        if !all.contains(claim) {
            all.push(claim.clone());
        }
    }
    let (waiting, hopeless): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| capacity::fits_ever(installed, &one.claim).is_ok());
    Ok((waiting, hopeless.into_iter().map(|one| one.place.request).collect()))
}

/// Applies the rule. If the oldest of several equal claims starts, the next ones are examined, too.
fn examine<T>(
    tx: &mut Tx<'_>,
    inventory: &Inventory,
    reserving: Option<&RequestId>,
    mut waiting: Vec<Waiting>,
    read: impl Fn(Examined<'_>) -> T,
) -> Result<T> {
    let (held, releasing, holdings) = (instances::held(tx)?, line::releasing(tx)?, line::holdings(tx)?);
    let host = Host { inventory, held: &held, releasing: &releasing };
    let examined = rule::examine(host, &holdings, reserving, &waiting);
    let started = waiting.iter().filter(|one| examined.start_of(&one.place.request).is_some());
    let started: Vec<Waiting> = started.take(MAX_STARTS as usize).cloned().collect();
    let mut more = Vec::new();
    for one in started {
        more.extend(line::next_equals(tx, &one.place, MAX_STARTS)?);
    }
    more.retain(|next| !waiting.contains(next));
    if more.is_empty() {
        return Ok(read(examined));
    }
    waiting.extend(more);
    Ok(read(rule::examine(host, &holdings, reserving, &waiting)))
}
