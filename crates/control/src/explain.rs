//! Explains the state of requests and objects: what it waits for, since when, until when, and what happens then.

use std::collections::BTreeMap;

use tarn_model::Time;
use tarn_model::capacity::{self, Claim, HeldCapacity};
use tarn_model::clusters::Instance;
use tarn_model::gpus::GpuRecord;
use tarn_model::ids::RequestId;
use tarn_model::line::{self as rule, Place};
use tarn_model::requests::{Progress, Request, RequestKind, RequestStatus};
use tarn_store::{Tx, clusters, gpus, instances, line, requests};

use crate::requests::{PULL, definition};
use crate::{Control, Result};

/// The queue position is counted exactly up to this number.
const MAX_COUNTED: u32 = 1000;

/// Explains several objects within one transaction. What all explanations need is read once.
pub(crate) struct Explainer<'c> {
    control: &'c Control,
    held: Option<HeldCapacity>,
    line: Option<Line>,
    gpus: Option<BTreeMap<String, GpuRecord>>,
}

/// The line as explanations need it.
struct Line {
    /// The claims in order, unless there are too many of them to count.
    places: Vec<Place>,
    /// The claim that reserves capacity, and until when.
    reserving: Option<(RequestId, Time)>,
}

impl<'c> Explainer<'c> {
    pub(crate) fn new(control: &'c Control) -> Self {
        Explainer { control, held: None, line: None, gpus: None }
    }

    /// Explains what a request is doing, or how it ended.
    pub(crate) fn explain_request(&mut self, tx: &mut Tx<'_>, request: &Request) -> Result<Option<String>> {
        let why = match request.kind {
            // Only restarts by the engine have a note, which says why.
            RequestKind::RestartCluster(_) if request.ended.is_none() => {
                requests::note(tx, &request.id)?.map(|note| format!("{note}. "))
            }
            _ => None,
        };
        let why = why.unwrap_or_default();
        let last = || request.message.as_deref().map(|message| format!(" Last: {message}.")).unwrap_or_default();
        let text = match &request.progress {
            Progress::Completed { .. } | Progress::Failed { .. } => return Ok(request.message.clone()),
            Progress::Queued => self.explain_waiting(tx, request)?,
            Progress::New if !why.is_empty() => format!(
                "{why}It waits for its turn, because only a few clusters restart at a time; until {}, then it fails.",
                request.deadline
            ),
            Progress::Undoing { left, why: failure } => {
                let until = request.deadline.after(self.control.settings().work_deadline);
                format!("{why}Failed and is being undone, {left} steps left, until {until}: {failure}.{}", last())
            }
            Progress::New | Progress::Forward { .. } => {
                let at_work = self.describe_step(tx, request)?;
                format!("{why}{at_work}; until {}, then it is undone and fails.{}", request.deadline, last())
            }
        };
        Ok(Some(text))
    }

    /// Explains an object by its first open request.
    pub(crate) fn explain_object(&mut self, tx: &mut Tx<'_>, open: &[Request], since: Time) -> Result<Option<String>> {
        let Some(first) = open.first() else { return Ok(None) };
        let text = self.explain_request(tx, first)?;
        Ok(text.map(|text| format!("{text} In this state since {since}, by request {}.", first.id)))
    }

    /// Describes the current step of a request, counted among the steps it has, and its progress.
    fn describe_step(&self, tx: &mut Tx<'_>, request: &Request) -> Result<String> {
        let definition = definition(&request.kind);
        let current = definition.step_at(request.progress.step()).map_or("finish", |step| step.name);
        let without_pull = needs_no_image(tx, request)?;
        let concerned = || definition.steps.iter().filter(|step| !(without_pull && step.name == PULL));
        let at = concerned().position(|step| step.name == current).unwrap_or_default() + 1;
        let verb = if request.status() == RequestStatus::Retrying { "Retries" } else { "Works on" };
        let work = format!("{verb} step {at} of {} ({current})", concerned().count());
        let reports = current == PULL && request.status() == RequestStatus::Processing;
        let progress = match self.control.memory.step_progress.last_message(&request.id).filter(|_| reports) {
            Some(message) => Some(message),
            // Another replica may be running the step.
            None if reports => requests::progress(tx, &request.id)?,
            None => None,
        };
        Ok(progress.map_or_else(|| work.clone(), |message| format!("{work}: {message}")))
    }

    /// Returns what is known about the GPUs of these instances; reads nothing when they have none.
    pub(crate) fn known_gpus(&mut self, tx: &mut Tx<'_>, nodes: &[Instance]) -> Result<BTreeMap<String, GpuRecord>> {
        let mut owned = nodes.iter().flat_map(|node| &node.gpus).peekable();
        if owned.peek().is_none() {
            return Ok(BTreeMap::new());
        }
        let all = match self.gpus.take() {
            Some(all) => all,
            None => gpus::all(tx)?,
        };
        let found = owned.filter_map(|id| Some((id.clone(), all.get(id)?.clone()))).collect();
        self.gpus = Some(all);
        Ok(found)
    }

    fn explain_waiting(&mut self, tx: &mut Tx<'_>, request: &Request) -> Result<String> {
        let nodes = match request.kind.objects() {
            (Some(cluster), _) => instances::of_cluster(tx, cluster)?,
            (None, _) => Vec::new(),
        };
        let held = match self.held.take() {
            Some(held) => held,
            None => instances::held(tx)?,
        };
        let shortage = nodes.first().and_then(|first| {
            let claim = Claim { shape: first.shape.clone(), nodes: nodes.len() as u32 };
            capacity::fits_now(&self.control.inventory(), &held, &claim).err()
        });
        self.held = Some(held);
        let what = shortage.map_or_else(|| "its turn".to_owned(), |shortage| shortage.to_string());
        let line = match self.line.take() {
            Some(line) => line,
            None => self.read_line(tx)?,
        };
        let position = match line.places.iter().position(|place| place.request == request.id) {
            Some(ahead) => format!("{} in line", ordinal(ahead + 1)),
            None => format!("one of more than {MAX_COUNTED} in line"),
        };
        let turn = self.explain_turn(tx, request, line.reserving.as_ref())?;
        self.line = Some(line);
        Ok(format!("Waits for {what}, {position}; until {}, then it fails. {turn}", request.deadline))
    }

    fn read_line(&self, tx: &mut Tx<'_>) -> Result<Line> {
        let reserving = line::reserving(tx)?.map(|(claim, until)| (claim.place.request, until));
        // To count them is much cheaper than to read them.
        let is_countable = line::length(tx, MAX_COUNTED + 1)? <= u64::from(MAX_COUNTED);
        let mut places = if is_countable { line::places(tx, MAX_COUNTED)? } else { Vec::new() };
        let (holdings, first) = (line::holdings(tx)?, reserving.as_ref().map(|(id, _)| id));
        rule::sort(&mut places, &self.control.inventory(), &holdings, first);
        Ok(Line { places, reserving })
    }

    /// Explains whether other claims may overtake one that waits, and until when.
    fn explain_turn(
        &self,
        tx: &mut Tx<'_>,
        request: &Request,
        reserving: Option<&(RequestId, Time)>,
    ) -> Result<String> {
        match reserving {
            Some((id, until)) if *id == request.id => {
                return Ok(format!("It reserves capacity until {until}: no other claim takes what it needs."));
            }
            Some((_, until)) => {
                return Ok(format!(
                    "Another claim reserves capacity until {until}; what that one leaves goes to claims that fit."
                ));
            }
            None => {}
        }
        let turn = line::turn(tx, &request.id)?.after(self.control.settings().line.reserve_after);
        let overtaken = "Claims that fit may overtake it";
        Ok(if turn > tx.now() {
            format!("{overtaken}; from {turn} on it reserves capacity when its turn comes.")
        } else {
            format!("{overtaken}; it reserves capacity when its turn comes.")
        })
    }
}

/// Returns whether a request skips pulling an image because its cluster needs none.
fn needs_no_image(tx: &mut Tx<'_>, request: &Request) -> Result<bool> {
    match &request.kind {
        RequestKind::ClaimCluster(id) => {
            Ok(clusters::get(tx, id)?.is_some_and(|cluster| cluster.wanted_image().is_none()))
        }
        _ => Ok(false),
    }
}

fn ordinal(number: usize) -> String {
    let suffix = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::ordinal;

    #[test]
    fn ordinals() {
        let all: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 101, 111].map(ordinal).to_vec();
        assert_eq!(all, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "101st", "111th"]);
    }
}
