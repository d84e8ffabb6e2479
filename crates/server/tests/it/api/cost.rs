//! What a call costs does not grow with the rows that other tenants have: every operation is called beside few of them and
//! beside many, and the statements, rows and steps of the database are counted.

use axum::http::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tarn_store::db::Cost;
use tarn_store::testing::add_others;

use super::authorization::{all_calls, owned};
use crate::support::harness::{Call, DatabaseKind, World};

/// The rows of other tenants of each kind; there are twenty-six kinds. The few are more than the thousand claims up to which
/// the place of a claim in the line is counted.
const FEW: u32 = 1_100;
const MANY: u32 = 20_000;

/// What a call was, its status, and what it cost.
type Called = (String, u16, Cost);

/// Calls every operation as the owner of what it is about, what changes something last.
async fn call_all(world: &World) -> Vec<Called> {
    // While it runs, no claim of others fits.
    let body = json!({ "instance_type": "1xH100", "tp_cluster_name": "with-gpu" });
    assert_eq!(world.post(&world.admin, "/cluster/create", body).await.status, 202);
    world.settle().await;
    let owned = owned(world, &world.admin).await;
    let mut calls = all_calls(&owned);
    let body = json!({ "instance_type": "8xH100", "tp_cluster_name": "waits" });
    assert_eq!(world.post(&world.admin, "/cluster/create", body).await.status, 202);
    world.settle().await;
    calls.push((Method::GET, "/cluster/info/waits".to_owned(), Value::Null));
    calls.push((Method::GET, "/job/list".to_owned(), Value::Null));
    calls.push((Method::GET, "/request/list?status=PENDING".to_owned(), Value::Null));
    calls.push((Method::GET, format!("/admin/key/list?user_id={}", world.caller.user.id), Value::Null));
    let rank =
        |method: &Method| [Method::GET, Method::POST, Method::PUT, Method::PATCH].iter().position(|one| one == method);
    calls.sort_by_key(|(method, ..)| rank(method).unwrap_or(usize::MAX));
    let mut called = Vec::with_capacity(calls.len());
    for (method, path, body) in calls {
        let what = format!("{method} {path}");
        let call = Call::new(method, &path).key(&world.admin).header("host", b"engine");
        let before = world.store.cost();
        let status = world.status(if body.is_null() { call } else { call.json(&body) }).await;
        let after = world.store.cost();
        let cost = Cost {
            statements: after.statements - before.statements,
            rows: after.rows - before.rows,
            steps: after.steps - before.steps,
        };
        called.push((what, status, cost));
        world.settle().await;
    }
    called
}

/// No operation reads more when other tenants have more.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn cost_of_calls_does_not_grow_with_rows_of_others(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind,
) {
    let (Some(few), Some(many)) = (World::open(database).await, World::open(database).await) else { return };
    add_others(&few.store, FEW).await.unwrap();
    add_others(&many.store, MANY).await.unwrap();
    let (few, many) = (call_all(&few).await, call_all(&many).await);
    let mut grown = Vec::new();
    for ((what, status, before), (_, other_status, after)) in few.iter().zip(&many) {
        assert_eq!(status, other_status, "{what}");
        // Steps differ a little by where a search ends in a page of an index.
        let is_more = after.statements > before.statements
            || after.rows > before.rows
            || after.steps > before.steps + before.steps / 10 + 20;
        if is_more {
            grown
                .push(format!("{what} ({status}): {before:?} beside {FEW} rows of each kind, {after:?} beside {MANY}"));
        }
    }
    assert!(grown.is_empty(), "these cost more when other tenants have more:\n{}", grown.join("\n"));
    let done = few.iter().filter(|(_, status, _)| *status < 300).count();
    assert!(done > few.len() / 2, "most calls are carried out: {done} of {}", few.len());
}
