//! Applies the rules for the life of objects: a pass over each bucket that has rules, page by page.
//!
//! A page is read first, which finds what may be due. One transaction then reads the rules and each of these objects
//! again, deletes what is due as a call of a user would, and stores where the pass continues. So a rule that was
//! changed or removed deletes nothing any more, and a crash or another replica repeats a page without effect.

mod apply;
mod examine;

use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tarn_model::Time;
use tarn_model::ids::{BucketId, ContentId, OrgId};
use tarn_store::{Tx, lifecycle_passes};

use crate::{Objects, Result};

/// How many pages one call applies. Organizations take turns with pages.
const MAX_PAGES: usize = 32;

/// When a bucket is tried again after an error.
const RETRY: Duration = Duration::from_secs(3600);

/// What was applied by one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesApplied {
    /// How many objects, versions, delete markers and uploads were removed.
    pub removed: u64,
    /// Whether there is more to do now.
    pub has_more: bool,
}

/// The organization that had the last turn.
#[derive(Default)]
pub(crate) struct LastTurn(Mutex<String>);

/// Where a pass continues: after this row. A pass without a position begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Position {
    /// Among the current objects, after this key.
    Objects(String),
    /// Among the old versions, after this sequence number of a key. `None` is the beginning.
    Versions(Option<(String, i64)>),
    /// Among the uploads, after this id of a key.
    Uploads(Option<(String, String)>),
}

/// What may be due.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Candidate {
    Object { key: String, sequence: i64 },
    Version { key: String, sequence: i64 },
    Upload { key: String, id: ContentId },
}

impl Candidate {
    /// Returns where a pass continues that ends with this candidate.
    fn position(&self) -> Position {
        match self {
            Candidate::Object { key, .. } => Position::Objects(key.clone()),
            Candidate::Version { key, sequence } => Position::Versions(Some((key.clone(), *sequence))),
            Candidate::Upload { key, id } => Position::Uploads(Some((key.clone(), id.to_string()))),
        }
    }
}

/// A page of a pass.
#[derive(Clone, Debug)]
struct LifecyclePage {
    /// The position that was read, as it is stored.
    from: String,
    candidates: Vec<Candidate>,
    /// Where the next page begins; `None` when the pass is complete.
    next: Option<Position>,
}

impl Objects {
    /// Applies rules for the life of objects, a limited number of pages.
    pub async fn apply_object_rules(&self) -> Result<RulesApplied> {
        let mut applied = RulesApplied::default();
        for _ in 0..MAX_PAGES {
            let now = self.clock().now();
            let Some(bucket) = self.next_pass(now).await? else {
                return Ok(applied);
            };
            match self.apply_page(&bucket, now).await {
                Ok(removed) => applied.removed += removed,
                Err(error) => {
                    // One bucket does not keep the others from their turns.
                    tracing::error!(%bucket, %error, "the rules of a bucket cannot be applied");
                    self.postpone(&bucket, now).await?;
                }
            }
        }
        applied.has_more = true;
        Ok(applied)
    }

    /// Returns the bucket whose page is next: that of the next organization, and of its buckets the one that has waited
    /// longest.
    async fn next_pass(&self, now: Time) -> Result<Option<BucketId>> {
        let last = self.last_turn().0.lock().clone();
        let read = self.store().read(|tx| -> Result<Option<(OrgId, BucketId)>> {
            let mut org = lifecycle_passes::next_organization(tx, now, &last)?;
            if org.is_none() && !last.is_empty() {
                org = lifecycle_passes::next_organization(tx, now, "")?;
            }
            let Some(org) = org else { return Ok(None) };
            Ok(lifecycle_passes::longest_due(tx, &org, now)?.map(|bucket| (org, bucket)))
        });
        let next = read.await?;
        Ok(next.map(|(org, bucket)| {
            org.as_str().clone_into(&mut self.last_turn().0.lock());
            bucket
        }))
    }

    async fn apply_page(&self, bucket: &BucketId, now: Time) -> Result<u64> {
        let page = self.store().read(|tx| examine::read_page(tx, bucket, now)).await?;
        let bucket = bucket.clone();
        self.write_and_remove(move |tx| apply::apply_page(tx, &bucket, &page)).await
    }

    async fn postpone(&self, bucket: &BucketId, now: Time) -> Result<()> {
        let bucket = bucket.clone();
        let write = self.write(move |tx: &mut Tx<'_>| -> Result<()> {
            let position = lifecycle_passes::position(tx, &bucket)?.unwrap_or_default();
            Ok(lifecycle_passes::advance(tx, &bucket, now.after(RETRY), &position)?)
        });
        write.await
    }
}

#[cfg(test)]
mod tests {
    use tarn_model::object_rules::{Expiry, ObjectRule};
    use tarn_store::testing::{DatabaseKind, World};

    use super::*;
    use crate::files::Sums;
    use crate::put::{Condition, ObjectLocation};
    use crate::{Components, Settings, accounts};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    async fn open() -> (World, Objects) {
        let base = World::open(DatabaseKind::Sqlite).await.unwrap();
        let (store, directory) = (base.store.clone(), base.fresh.dir.path().join("objects"));
        let settings = Settings { reserve_bytes: 0, ..Settings::default() };
        let (clock, ids) = (base.clock.clone(), base.ids.clone());
        let objects = Objects::open(Components { store, directory, secret: [7; 32], settings, clock, ids }).unwrap();
        (base, objects)
    }

    async fn bucket(base: &World, objects: &Objects, org: &str, name: &str, rules: &[&str]) -> BucketId {
        let org: OrgId = org.parse().unwrap();
        let of = org.clone();
        base.store.write(move |tx| accounts::enable(tx, &of).map(drop)).await.unwrap();
        let made = objects.create_bucket(&org, None, name).await.unwrap();
        objects.set_object_rules(&org, name, Some(rules.iter().map(|prefix| rule(prefix)).collect())).await.unwrap();
        made.id
    }

    fn rule(prefix: &str) -> ObjectRule {
        let (id, expiry) = (prefix.to_owned(), Some(Expiry::Days(1)));
        ObjectRule { prefix: id.clone(), id, enabled: true, expiry, ..ObjectRule::default() }
    }

    async fn put(objects: &Objects, org: &OrgId, key: &str) {
        let location = ObjectLocation { org: org.clone(), bucket: "one".to_owned(), key: key.to_owned() };
        let received = objects.intake(&location, Some(0), Sums::with(None)).await.unwrap().finish().await.unwrap();
        objects.put(&location, received, Default::default(), Condition::default()).await.unwrap();
    }

    async fn apply(objects: &Objects, bucket: &BucketId, page: LifecyclePage) -> u64 {
        let bucket = bucket.clone();
        objects.write_and_remove(move |tx| apply::apply_page(tx, &bucket, &page)).await.unwrap()
    }

    /// An object that was written after a page was read is not deleted with the page, even if its rule ends it, too.
    #[tokio::test]
    async fn newer_object_is_not_deleted() {
        let (base, objects) = open().await;
        let id = bucket(&base, &objects, "o-000000000001", "one", &[]).await;
        let org: OrgId = "o-000000000001".parse().unwrap();
        for key in ["replaced", "removed", "same"] {
            put(&objects, &org, key).await;
        }
        let ended = ObjectRule { expiry: Some(Expiry::Date(0)), ..rule("") };
        objects.set_object_rules(&org, "one", Some(vec![ended])).await.unwrap();
        let now = objects.clock().now();
        let page = objects.store().read(|tx| examine::read_page(tx, &id, now)).await.unwrap();
        assert_eq!(page.candidates.len(), 3);
        base.clock.advance(Duration::from_millis(1));
        put(&objects, &org, "replaced").await;
        objects.delete(&org, "one", "removed").await.unwrap();
        put(&objects, &org, "removed").await;
        assert_eq!(apply(&objects, &id, page).await, 1, "only the one that is the same");
        let query = crate::list::Query { limit: 10, ..Default::default() };
        assert_eq!(objects.list(&org, "one", &query).await.unwrap().entries.len(), 2);
    }

    /// Organizations take turns, however many buckets one of them has.
    #[tokio::test]
    async fn organizations_take_turns() {
        let (base, objects) = open().await;
        for name in ["one", "two", "three"] {
            bucket(&base, &objects, "o-000000000001", name, &[""]).await;
        }
        let small = bucket(&base, &objects, "o-000000000002", "one", &[""]).await;
        let mut turns = Vec::new();
        for _ in 0..6 {
            turns.push(objects.next_pass(objects.clock().now()).await.unwrap() == Some(small.clone()));
        }
        assert_eq!(turns, [false, true, false, true, false, true]);
    }

    /// A page that was read with older rules deletes only what the rules of its transaction delete.
    #[tokio::test]
    async fn changed_rules_apply_at_once() {
        let (base, objects) = open().await;
        let id = bucket(&base, &objects, "o-000000000001", "one", &[""]).await;
        let org: OrgId = "o-000000000001".parse().unwrap();
        for key in ["a", "b"] {
            put(&objects, &org, key).await;
        }
        base.clock.advance(3 * DAY);
        let now = objects.clock().now();
        let read = || async { objects.store().read(|tx| examine::read_page(tx, &id, now)).await.unwrap() };
        let apply = |page: LifecyclePage| apply(&objects, &id, page);
        let page = read().await;
        assert_eq!(page.candidates.len(), 2);
        objects.set_object_rules(&org, "one", Some(vec![rule("b")])).await.unwrap();
        assert_eq!(apply(page.clone()).await, 0, "the pass has begun again");
        let page = read().await;
        assert_eq!((page.candidates.len(), apply(page.clone()).await), (1, 1));
        objects.set_object_rules(&org, "one", None).await.unwrap();
        assert_eq!(apply(page).await, 0);
        objects.set_object_rules(&org, "one", Some(vec![rule("")])).await.unwrap();
        let page = read().await;
        assert_eq!((apply(page.clone()).await, apply(page).await), (1, 0), "another replica was faster");
    }
}
