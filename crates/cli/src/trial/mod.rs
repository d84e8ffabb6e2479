//! A trial of an engine as a user would have it: a cluster, a volume on it, a job that writes there and whose output is fetched, a
//! bucket with an object. Everything has a name that nobody else has, and goes again whatever happens.
//!
//! Each thing that is done is a [`Step`], which is told with its time as soon as it is over. What is left is found by its name,
//! so that also what was just being made when somebody pressed Ctrl-C is not forgotten.

mod buckets;
mod cleaning;
mod machines;
mod signing;

use std::future::Future;

use tokio::time::Instant;

use crate::commands::{Context, Options};
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::interrupts::Interrupts;
use crate::output::text;
use crate::settings::Settings;
use crate::surroundings::Surroundings;

/// Something that was done.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What it is called.
    pub name: &'static str,
    /// How long it took.
    pub seconds: f64,
    /// What came of it.
    pub told: String,
    /// Why it did not work.
    pub failure: Option<String>,
}

/// What a trial needs besides an engine.
pub struct Means<'a> {
    /// A few characters that nobody else has: small letters and digits.
    pub mark: String,
    /// The present time as signatures write it: `20261116T070000Z`.
    pub date: &'a (dyn Fn() -> String + Sync),
    /// Whether the engine runs what it is given; one with made up machines does not.
    pub has_jobs: bool,
    /// Who is told of each step.
    pub tell: &'a mut (dyn FnMut(Step) + Send),
}

/// Carries it out; whether somebody pressed Ctrl-C. An error says why it could not even begin.
pub async fn trial(
    options: &Options,
    surroundings: &Surroundings,
    means: Means<'_>,
) -> std::result::Result<bool, Failure> {
    let interrupts = Interrupts::listen()?;
    let engine = Engine::new(Settings::find(options, surroundings)?, interrupts.clone(), true)?;
    let ctx = Context { engine, options, surroundings, interrupts };
    let mut trial =
        Trial { name: format!("doctor-{}", means.mark), has_enabled: false, is_cleaning: false, ctx: &ctx, means };
    if trial.step("key", who(&ctx)).await.is_none() {
        return Ok(ctx.interrupts.is_pressed());
    }
    machines::run(&mut trial).await;
    buckets::run(&mut trial).await;
    trial.is_cleaning = true;
    cleaning::clean(&mut trial).await;
    Ok(ctx.interrupts.is_pressed())
}

/// A trial under way.
struct Trial<'a, 'm> {
    ctx: &'a Context<'a>,
    /// What everything is called.
    name: String,
    /// Whether object storage was not enabled before, and so is not to be afterwards.
    has_enabled: bool,
    /// Whether nothing new is made any more, and what there is goes.
    is_cleaning: bool,
    means: Means<'m>,
}

impl Trial<'_, '_> {
    /// Does something and tells it; `None` when it did not work. After Ctrl-C nothing new is begun. A call that makes something is
    /// heard to its end, or nobody would know what there is to be removed; only waits are broken off.
    async fn step<T>(&mut self, name: &'static str, work: impl Future<Output = Result<(T, String)>>) -> Option<T> {
        if self.ctx.interrupts.is_pressed() && !self.is_cleaning {
            return None;
        }
        let began = Instant::now();
        let done = work.await;
        let seconds = began.elapsed().as_secs_f64();
        let (value, told, failure) = match done {
            Ok((value, told)) => (Some(value), told, None),
            Err(failure) => (None, String::new(), Some(failure.to_string())),
        };
        (self.means.tell)(Step { name, seconds, told, failure });
        value
    }

    /// The same for what nobody needs the value of.
    async fn act(&mut self, name: &'static str, work: impl Future<Output = Result<String>>) -> bool {
        self.step(name, async { Ok(((), work.await?)) }).await.is_some()
    }
}

async fn who(ctx: &Context<'_>) -> Result<((), String)> {
    let me = ctx.engine.get("/me", &[]).await?;
    let email = [text(&me, "email"), text(&me["user"], "email")].into_iter().find(|email| !email.is_empty());
    Ok(((), format!("{} at {}", email.unwrap_or("a key"), ctx.engine.address())))
}
