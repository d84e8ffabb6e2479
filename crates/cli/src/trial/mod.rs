//! A trial of an engine through its API, as a user would use it: a cluster, a volume on it, a job that writes there and
//! whose output is fetched, and a bucket with an object. Everything has a unique name, and is removed again whatever
//! happens.
//!
//! Each action is a [`TrialStep`], which is reported with its duration as soon as it has ended. The cleanup finds
//! things by name, so that it also finds what was being created when the user pressed Ctrl-C.

mod buckets;
mod cleanup;
mod signing;
mod workload;

use std::future::Future;

use tokio::time::Instant;

use crate::commands::{Context, Options};
use crate::environment::Environment;
use crate::failure::{Failure, Result};
use crate::settings::Settings;
use crate::terminal::interrupts::Interrupts;
use crate::terminal::output::text_field;
use crate::transport::api_client::ApiClient;

/// One action of the trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialStep {
    /// The name of the step.
    pub name: &'static str,
    /// The duration.
    pub seconds: f64,
    /// What was done, for the user.
    pub result: String,
    /// Why the step failed.
    pub failure: Option<String>,
}

/// The parameters of a trial.
pub struct TrialOptions<'a> {
    /// A unique suffix for names: lower-case letters and digits.
    pub mark: String,
    /// The current time in the format of S3 signatures: `20261116T070000Z`.
    pub date: &'a (dyn Fn() -> String + Sync),
    /// Whether the engine runs jobs; the fake driver does not.
    pub has_jobs: bool,
    /// Called after each step.
    pub on_step: &'a mut (dyn FnMut(TrialStep) + Send),
}

/// Runs the trial, and returns whether the user pressed Ctrl-C. An error says why the trial could not start.
pub async fn run_trial(
    client: &Options,
    environment: &Environment,
    options: TrialOptions<'_>,
) -> std::result::Result<bool, Failure> {
    let interrupts = Interrupts::listen()?;
    let api = ApiClient::new(Settings::resolve(client, environment)?, interrupts.clone(), true)?;
    let ctx = Context { api, options: client, environment, interrupts };
    let mut trial =
        Trial { name: format!("doctor-{}", options.mark), has_enabled: false, is_cleaning: false, ctx: &ctx, options };
    if trial.run_step("key", check_key(&ctx)).await.is_none() {
        return Ok(ctx.interrupts.is_pressed());
    }
    workload::run_workload(&mut trial).await;
    buckets::run_bucket_steps(&mut trial).await;
    trial.is_cleaning = true;
    cleanup::remove_everything(&mut trial).await;
    Ok(ctx.interrupts.is_pressed())
}

/// A trial in progress.
struct Trial<'a, 'm> {
    ctx: &'a Context<'a>,
    /// The name of everything that is created.
    name: String,
    /// Whether the trial enabled object storage, and disables it afterwards.
    has_enabled: bool,
    /// Whether the cleanup has begun.
    is_cleaning: bool,
    options: TrialOptions<'m>,
}

impl Trial<'_, '_> {
    /// Runs a step and reports it; `None` if it failed. After Ctrl-C no new step starts. Calls that create something
    /// complete, so that the cleanup knows what to remove; only waits are interrupted.
    async fn run_step<T>(&mut self, name: &'static str, work: impl Future<Output = Result<(T, String)>>) -> Option<T> {
        if self.ctx.interrupts.is_pressed() && !self.is_cleaning {
            return None;
        }
        let began = Instant::now();
        let done = work.await;
        let seconds = began.elapsed().as_secs_f64();
        let (value, result, failure) = match done {
            Ok((value, result)) => (Some(value), result, None),
            Err(failure) => (None, String::new(), Some(failure.to_string())),
        };
        (self.options.on_step)(TrialStep { name, seconds, result, failure });
        value
    }

    /// Runs a step without a value, and returns whether it succeeded.
    async fn run_action(&mut self, name: &'static str, work: impl Future<Output = Result<String>>) -> bool {
        self.run_step(name, async { Ok(((), work.await?)) }).await.is_some()
    }
}

async fn check_key(ctx: &Context<'_>) -> Result<((), String)> {
    let me = ctx.api.get("/me", &[]).await?;
    let email =
        [text_field(&me, "email"), text_field(&me["user"], "email")].into_iter().find(|email| !email.is_empty());
    Ok(((), format!("{} at {}", email.unwrap_or("a key"), ctx.api.address())))
}
