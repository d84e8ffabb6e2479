//! What the engine does by itself costs the same however many rows other tenants have that wait, have ended or are only kept.
//!
//! The same things happen twice, beside few such rows and beside many, and the statements, rows and steps of the
//! database are counted. Time is not measured, so nothing else on the host can change the result.

use std::time::Duration;

use rstest::rstest;
use tarn_control::operations::clusters;
use tarn_control::operations::jobs::{self, NewJob};
use tarn_control::reconcilers::{self, clock};
use tarn_control::runner::Runner;
use tarn_control::testing::{World, world};
use tarn_store::db::Cost;
use tarn_store::testing::{DatabaseKind, add_others};
use tarn_store::{Error, jobs as rows};

/// The rows of other tenants of each kind; there are twenty-six kinds, so the many are half a million rows. What reads a
/// page at a time finds a whole page among the few.
const FEW: u32 = 100;
const MANY: u32 = 20_000;

/// What was measured, with its name.
struct Measured {
    world: World,
    costs: Vec<(&'static str, Cost)>,
}

impl Measured {
    /// Runs the work, and records what it cost.
    async fn measure<T>(&mut self, what: &'static str, work: impl Future<Output = T>) -> T {
        let before = self.world.store.cost();
        let result = work.await;
        let after = self.world.store.cost();
        let cost = Cost {
            statements: after.statements - before.statements,
            rows: after.rows - before.rows,
            steps: after.steps - before.steps,
        };
        self.costs.push((what, cost));
        result
    }
}

/// An engine with a cluster that runs, a volume, a job that waits, and as many rows of other tenants.
async fn engine(database: DatabaseKind, others: u32) -> Option<Measured> {
    let world = world(database).await?;
    add_others(&world.store, others).await.unwrap();
    // While it runs, no claim of others fits.
    let cluster = world.running("1xH100", 2).await;
    world.ready_volume().await;
    let config = "commands = [\"true\"]".to_owned();
    let new = NewJob { config, cluster: cluster.to_string(), teardown: false, has_files: false };
    jobs::run(&world.control, &world.caller, new).await.unwrap();
    Some(Measured { world, costs: Vec::new() })
}

/// Everything that the engine does by itself, once.
async fn measure_all(measured: &mut Measured) {
    let control = measured.world.control.clone();
    let control = &control;
    let mut watch = clock::resume(&measured.world.store, measured.world.clock.clone()).await.unwrap();
    measured.measure("the reconciler of instances", reconcilers::instances::tick(control)).await.unwrap();
    measured.measure("the reconciler of reboots", reconcilers::reboots::recover(control)).await.unwrap();
    measured.measure("the reconciler of access", reconcilers::access::tick(control)).await.unwrap();
    measured.measure("the reconciler of GPUs", reconcilers::gpus::tick(control)).await.unwrap();
    measured.measure("the reconciler of expiry", reconcilers::expiry::tick(control)).await.unwrap();
    measured.measure("the reconciler of revocations", reconcilers::revocations::tick(control)).await.unwrap();
    measured.measure("the reconciler of access records", reconcilers::access_records::tick(control)).await.unwrap();
    measured.measure("the reconciler of the clock", watch.tick(control)).await.unwrap();
    measured.measure("ended jobs", reconcilers::jobs::tidy(control)).await.unwrap();
    measured.measure("jobs on nodes", reconcilers::jobs::sweep_nodes(control)).await.unwrap();
    measured.measure("files of jobs", reconcilers::jobs::sweep_objects(control)).await.unwrap();
    measured.measure("request counts", reconcilers::objects::store_request_counts(control)).await.unwrap();
    measured.measure("closed object storage", reconcilers::objects::empty_closed_accounts(control)).await.unwrap();
    measured.measure("abandoned uploads", reconcilers::objects::abort_abandoned_uploads(control)).await.unwrap();
    measured.measure("rules for objects", reconcilers::objects::apply_object_rules(control)).await.unwrap();
    measured.measure("files of objects", reconcilers::objects::sweep_object_files(control)).await.unwrap();

    let store = measured.world.store.clone();
    let dispatch = store.write(|tx| {
        rows::tearing_down(tx, None, 100)?;
        assert!(rows::is_any_due(tx)?);
        assert_eq!(rows::admissible(tx)?.len(), 1);
        assert!(rows::lease_available(tx, Duration::from_secs(1), 100)?.is_empty());
        Ok::<_, Error>(())
    });
    measured.measure("the dispatch of jobs", dispatch).await.unwrap();

    let runner = Runner::new(control.clone());
    measured.measure("the runner without work", runner.tick()).await.unwrap();
    let (waiting, _) = measured.world.create("8xH100", 1).await;
    measured.measure("the runner with a claim that has to wait", runner.tick()).await.unwrap();
    measured.world.create("1xCPU", 1).await;
    measured.measure("the runner with a claim that starts", runner.tick()).await.unwrap();
    clusters::destroy(control, &measured.world.caller, waiting.as_str()).await.unwrap();
    measured.measure("the runner with a release", runner.tick()).await.unwrap();
}

/// Nothing that the engine does by itself reads more when other tenants have more.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cost_does_not_grow_with_rows_of_others(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let Some(mut few) = engine(database, FEW).await else { return };
    let Some(mut many) = engine(database, MANY).await else { return };
    measure_all(&mut few).await;
    measure_all(&mut many).await;
    let mut grown = Vec::new();
    for ((what, before), (_, after)) in few.costs.iter().zip(&many.costs) {
        // Steps differ a little by where a search ends in a page of an index.
        let is_more = after.statements > before.statements
            || after.rows > before.rows
            || after.steps > before.steps + before.steps / 10 + 20;
        if is_more {
            grown.push(format!("{what}: {before:?} beside {FEW} rows of each kind, {after:?} beside {MANY}"));
        }
    }
    assert!(grown.is_empty(), "these cost more when other tenants have more:\n{}", grown.join("\n"));
    assert!(few.costs.iter().map(|(_, cost)| cost.statements).sum::<u64>() > 100, "they were counted");
}
