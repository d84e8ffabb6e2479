//! A store with a user in it.

use std::ops::Deref;

use tarn_model::capacity::Shape;
use tarn_model::clusters::{Cluster, Instance};
use tarn_model::events::{Event, ScopeEvent};
use tarn_model::ids::{ClusterId, InstanceId, OrgId, UserId};
use tarn_model::lifecycle::State;
use tarn_model::users::{Organization, Owner, User};
use tarn_model::{Ids, Money, Time};
use tarn_store::testing::{self, DatabaseKind};
use tarn_store::{Database, Error, users};

pub(crate) struct World {
    base: testing::World,
    pub(crate) owner: Owner,
}

impl Deref for World {
    type Target = testing::World;

    fn deref(&self) -> &testing::World {
        &self.base
    }
}

/// An event with a number in its data.
pub(crate) fn granted(micros: i64) -> Event {
    Event::Scope("o-1".into(), ScopeEvent::Granted { micros, transaction: "t-1".into() })
}

pub(crate) async fn world(database: DatabaseKind) -> Option<World> {
    let base = testing::World::open(database).await?;
    let (store, ids) = (&base.store, &base.ids);
    let org = Organization { id: OrgId::fresh(&**ids), name: "ours".into(), created: Time::ZERO };
    let user = user(&**ids, "ada@example.org", Some(org.id.clone()));
    let owner = user.owner();
    let write = store.write(move |tx| -> Result<(), Error> {
        users::insert_org(tx, &org)?;
        users::insert(tx, &user)
    });
    write.await.unwrap();
    Some(World { base, owner })
}

pub(crate) fn user(ids: &dyn Ids, email: &str, org: Option<OrgId>) -> User {
    User {
        id: UserId::fresh(ids),
        email: email.to_owned(),
        org,
        org_admin: false,
        engine_admin: false,
        disabled: false,
        created: Time::ZERO,
    }
}

pub(crate) fn cluster(ids: &dyn Ids, owner: &Owner, name: &str, created: i64) -> Cluster {
    Cluster {
        id: ClusterId::fresh(ids),
        name: name.to_owned(),
        owner: owner.clone(),
        instance_type: "1xCPU".into(),
        num_nodes: 1,
        hourly_rate: Money::from_micros(15_000),
        container: None,
        image: None,
        jobs_parallel: 1,
        deletion_protection: false,
        state: State::Pending,
        since: Time::from_micros(created),
        created: Time::from_micros(created),
        version: 0,
    }
}

pub(crate) fn instance(ids: &dyn Ids, cluster: &ClusterId, node: u32) -> Instance {
    Instance {
        id: InstanceId::fresh(ids),
        cluster: cluster.clone(),
        node,
        state: State::Pending,
        shape: Shape { cpu_milli: 1000, memory_bytes: 1 << 30, gpus: 0, gpu_model: None },
        gpus: Vec::new(),
        holds_capacity: false,
        boot: 1,
        private_ip: None,
    }
}

/// Changes the database directly, as an older version would have left it.
pub(crate) async fn raw(database: &Database, sql: &str) {
    match database {
        Database::Sqlite(path) => rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap(),
        Database::Postgres(url) => {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            let connection = tokio::spawn(connection);
            client.batch_execute(sql).await.unwrap();
            drop(client);
            let _ = connection.await;
        }
    }
}
