//! Every state explains itself: what it waits for, since when, until when, and what happens then.

use std::collections::BTreeMap;

use tarn_model::Time;
use tarn_model::capacity::{self, Claim, Held};
use tarn_model::clusters::Instance;
use tarn_model::gpus::Known;
use tarn_model::ids::RequestId;
use tarn_model::requests::{Request, RequestStatus};
use tarn_store::{Tx, gpus, instances, requests};

use crate::requests::definition;
use crate::{Control, Result};

/// The place in the line is counted exactly up to here.
const COUNTED: u32 = 1000;

/// Explains what it is asked about within one transaction; what all explanations need is read once.
pub(crate) struct Explainer<'c> {
    control: &'c Control,
    held: Option<Held>,
    line: Option<Vec<RequestId>>,
    gpus: Option<BTreeMap<String, Known>>,
}

impl<'c> Explainer<'c> {
    pub(crate) fn new(control: &'c Control) -> Self {
        Explainer { control, held: None, line: None, gpus: None }
    }

    /// What a request does now, or what came of it.
    pub(crate) fn request(&mut self, tx: &mut Tx<'_>, request: &Request) -> Result<Option<String>> {
        if request.status.is_terminal() {
            return Ok(request.message.clone());
        }
        if request.waiting {
            return self.waiting(tx, request).map(Some);
        }
        let last = request.message.as_deref().map(|message| format!(" Last: {message}.")).unwrap_or_default();
        let text = match &request.failure {
            Some(failure) => {
                let until = request.deadline.after(self.control.settings().work_deadline);
                format!("Failed and is being undone, {} steps are left, until {until}: {failure}.{last}", request.step)
            }
            None => format!("{}; until {}, then it is undone and fails.{last}", at_work(request), request.deadline),
        };
        Ok(Some(text))
    }

    /// What the first open request of an object says about it.
    pub(crate) fn object(&mut self, tx: &mut Tx<'_>, open: &[Request], since: Time) -> Result<Option<String>> {
        let Some(first) = open.first() else { return Ok(None) };
        let text = self.request(tx, first)?;
        Ok(text.map(|text| format!("{text} In this state since {since}, by request {}.", first.id)))
    }

    /// What is known of the GPUs that instances have; of none without GPUs.
    pub(crate) fn gpus(&mut self, tx: &mut Tx<'_>, nodes: &[Instance]) -> Result<BTreeMap<String, Known>> {
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

    fn waiting(&mut self, tx: &mut Tx<'_>, request: &Request) -> Result<String> {
        let nodes = match &request.cluster {
            Some(cluster) => instances::of_cluster(tx, cluster)?,
            None => Vec::new(),
        };
        let held = match self.held.take() {
            Some(held) => held,
            None => instances::held(tx)?,
        };
        let lacks = nodes.first().and_then(|first| {
            let claim = Claim { shape: first.shape.clone(), nodes: nodes.len() as u32 };
            capacity::place(&self.control.inventory(), &held, &[], &claim).err()
        });
        self.held = Some(held);
        let what = lacks.map_or_else(|| "its turn".to_owned(), |shortage| shortage.to_string());
        let line = match self.line.take() {
            Some(line) => line,
            None => requests::line(tx, COUNTED)?,
        };
        let place = match line.iter().position(|id| *id == request.id) {
            Some(ahead) => format!("{} in line", ordinal(ahead + 1)),
            None => format!("more than {COUNTED} are before it"),
        };
        self.line = Some(line);
        Ok(format!("Waits for {what}, {place}; until {}, then it fails.", request.deadline))
    }
}

fn at_work(request: &Request) -> String {
    let steps = definition(request.kind).steps;
    let at = (request.step as usize).min(steps.len().saturating_sub(1));
    let name = steps.get(at).map_or("finish", |step| step.name);
    let verb = if request.status == RequestStatus::Retrying { "Retries" } else { "Works on" };
    format!("{verb} step {} of {} ({name})", at + 1, steps.len())
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
