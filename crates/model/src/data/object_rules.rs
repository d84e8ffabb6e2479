//! Rules for the life of objects: when an object, an old version or an upload of a bucket is removed.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Time;

/// The most rules of a bucket.
pub const MAX_RULES: usize = 1000;

/// The largest sum of all texts of a bucket's rules, in bytes.
pub const MAX_BYTES: usize = 128 << 10;

/// The most tags of a bucket's rules. They are compared with those of each object while others wait to write.
pub const MAX_TAGS: usize = 1000;

/// The most newer versions that a rule keeps.
pub const MAX_KEPT: u32 = 100;

/// The longest id of a rule.
const MAX_ID: usize = 255;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A rule: what it applies to, and when that is removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectRule {
    pub id: String,
    pub enabled: bool,
    pub prefix: String,
    /// Whether the prefix was given outside of a filter, as older clients do and expect.
    pub has_plain_prefix: bool,
    /// The tags that an object must have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<(String, String)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub larger_than: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smaller_than: Option<u64>,
    /// When current objects are deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Expiry>,
    /// Whether a delete marker is removed that hides nothing any more.
    pub removes_lone_markers: bool,
    /// When old versions are removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_versions: Option<OldVersions>,
    /// How many days after their start uploads are aborted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub abort_days: Option<u32>,
}

/// When a current object is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// This many days after it was modified.
    Days(u32),
    /// At a time, in microseconds since 1970.
    Date(i64),
}

/// When an old version is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OldVersions {
    /// This many days after it became old.
    pub days: u32,
    /// Unless fewer old versions than this are newer.
    pub kept: u32,
}

/// Why rules are not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum BadObjectRules {
    #[error("a bucket has 1 to {MAX_RULES} rules, with {MAX_TAGS} tags and {MAX_BYTES} bytes of text in all")]
    Amount,
    #[error("the id of a rule has at most {MAX_ID} characters")]
    LongId,
    #[error("the id of a rule must be unique: {0}")]
    SameId(String),
    #[error("rule {0} has no action")]
    NoAction(String),
    #[error("the days of a rule are positive: {0}")]
    Days(String),
    #[error("the date of a rule is midnight in UTC: {0}")]
    Date(String),
    #[error("a rule keeps at most {MAX_KEPT} newer versions: {0}")]
    Kept(String),
    #[error("uploads and delete markers have no tags and no size: {0}")]
    Filter(String),
    #[error("a rule removes expired delete markers, or has days or a date: {0}")]
    Marker(String),
}

impl ObjectRule {
    fn check(&self) -> Result<(), BadObjectRules> {
        let id = self.id.clone();
        let days = [
            match self.expiry {
                Some(Expiry::Days(days)) => Some(days),
                Some(Expiry::Date(_)) | None => None,
            },
            self.old_versions.map(|old| old.days),
            self.abort_days,
        ];
        let has_filter = !self.tags.is_empty() || self.larger_than.is_some() || self.smaller_than.is_some();
        let is_midnight = |micros: i64| micros.rem_euclid(day_micros()) == 0;
        if id.chars().count() > MAX_ID {
            Err(BadObjectRules::LongId)
        } else if self.expiry.is_none()
            && self.old_versions.is_none()
            && self.abort_days.is_none()
            && !self.removes_lone_markers
        {
            Err(BadObjectRules::NoAction(id))
        } else if days.contains(&Some(0)) {
            Err(BadObjectRules::Days(id))
        } else if matches!(self.expiry, Some(Expiry::Date(date)) if !is_midnight(date)) {
            Err(BadObjectRules::Date(id))
        } else if self.old_versions.is_some_and(|old| old.kept > MAX_KEPT) {
            Err(BadObjectRules::Kept(id))
        } else if has_filter && (self.abort_days.is_some() || self.removes_lone_markers) {
            Err(BadObjectRules::Filter(id))
        } else if self.removes_lone_markers && self.expiry.is_some() {
            Err(BadObjectRules::Marker(id))
        } else {
            Ok(())
        }
    }

    fn bytes(&self) -> usize {
        let tags = self.tags.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        self.id.len() + self.prefix.len() + tags
    }

    fn applies_to(&self, key: &str) -> bool {
        self.enabled && key.starts_with(&self.prefix)
    }

    fn has_size(&self, size: u64) -> bool {
        self.larger_than.is_none_or(|least| size > least) && self.smaller_than.is_none_or(|most| size < most)
    }

    /// Returns whether an object has all tags of the rule.
    pub fn has_tags(&self, tags: &[(String, String)]) -> bool {
        self.tags.iter().all(|tag| tags.contains(tag))
    }

    /// Returns whether the rule deletes a current object, if it has the tags.
    pub fn ends_object(&self, key: &str, size: u64, modified: Time, now: Time) -> bool {
        let is_due = match self.expiry {
            Some(Expiry::Days(days)) => is_due(modified, days, now),
            Some(Expiry::Date(date)) => Time::from_micros(date) <= now,
            None => false,
        };
        is_due && self.applies_to(key) && self.has_size(size)
    }

    /// Returns whether the rule removes a delete marker that hides nothing any more.
    pub fn ends_lone_marker(&self, key: &str, modified: Time, now: Time) -> bool {
        let is_due = match self.expiry {
            Some(Expiry::Days(days)) => self.tags.is_empty() && is_due(modified, days, now),
            Some(Expiry::Date(_)) | None => self.removes_lone_markers,
        };
        is_due && self.applies_to(key)
    }

    /// Returns whether the rule removes a version that is old since a time, if it has the tags. Delete markers have no
    /// size. `newer` is the number of old versions that are newer.
    pub fn ends_version(&self, key: &str, size: Option<u64>, since: Time, newer: u32, now: Time) -> bool {
        let Some(OldVersions { days, kept }) = self.old_versions else {
            return false;
        };
        let fits = size.is_none_or(|size| self.has_size(size));
        newer >= kept && fits && is_due(since, days, now) && self.applies_to(key)
    }

    /// Returns whether the rule aborts an upload.
    pub fn ends_upload(&self, key: &str, started: Time, now: Time) -> bool {
        self.abort_days.is_some_and(|days| is_due(started, days, now)) && self.applies_to(key)
    }
}

/// Checks the rules of a bucket.
pub fn check_rules(rules: &[ObjectRule]) -> Result<(), BadObjectRules> {
    let bytes = rules.iter().map(ObjectRule::bytes).sum::<usize>();
    let tags = rules.iter().map(|rule| rule.tags.len()).sum::<usize>();
    if rules.is_empty() || rules.len() > MAX_RULES || tags > MAX_TAGS || bytes > MAX_BYTES {
        return Err(BadObjectRules::Amount);
    }
    let mut ids = HashSet::new();
    for rule in rules {
        rule.check()?;
        if !ids.insert(&rule.id) {
            return Err(BadObjectRules::SameId(rule.id.clone()));
        }
    }
    Ok(())
}

/// Returns the first midnight after a time: nothing becomes due before it.
pub fn next_midnight(now: Time) -> Time {
    Time::from_micros((now.as_micros().div_euclid(day_micros()) + 1) * day_micros())
}

/// Returns whether so many days have passed since a time, and the next midnight in UTC after them.
fn is_due(since: Time, days: u32, now: Time) -> bool {
    let end = since.after(DAY.saturating_mul(days)).as_micros();
    let midnight = end.div_euclid(day_micros()) + i64::from(end.rem_euclid(day_micros()) != 0);
    now.as_micros() >= midnight.saturating_mul(day_micros())
}

fn day_micros() -> i64 {
    i64::try_from(DAY.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: f64) -> Time {
        Time::from_micros((days * 86_400e6) as i64)
    }

    fn rule() -> ObjectRule {
        ObjectRule { id: "r".into(), enabled: true, prefix: "log/".into(), ..ObjectRule::default() }
    }

    #[test]
    fn objects_end_at_midnight_after_their_days() {
        let rule = ObjectRule { expiry: Some(Expiry::Days(3)), ..rule() };
        let ends = |now| rule.ends_object("log/a", 1, at(10.4), now);
        assert_eq!([13.3, 13.5, 13.99, 14.0, 20.0].map(|now| ends(at(now))), [false, false, false, true, true]);
        assert!(rule.ends_object("log/a", 1, at(10.0), at(13.0)));
        assert!(!rule.ends_object("other/a", 1, at(10.0), at(99.0)));
        let disabled = ObjectRule { enabled: false, ..rule };
        assert!(!disabled.ends_object("log/a", 1, at(10.0), at(99.0)));
    }

    #[test]
    fn rules_select_by_date_and_size() {
        let rule = ObjectRule {
            expiry: Some(Expiry::Date(at(5.0).as_micros())),
            larger_than: Some(10),
            smaller_than: Some(20),
            ..rule()
        };
        let ends = |size, now| rule.ends_object("log/a", size, at(9.0), at(now));
        assert_eq!(
            [ends(10, 9.0), ends(11, 9.0), ends(19, 5.0), ends(19, 4.9), ends(20, 9.0)],
            [false, true, true, false, false]
        );
    }

    #[test]
    fn old_versions_and_uploads_end() {
        let rule = ObjectRule { old_versions: Some(OldVersions { days: 1, kept: 2 }), abort_days: Some(2), ..rule() };
        assert!(!rule.ends_version("log/a", Some(1), at(1.0), 1, at(9.0)));
        assert!(rule.ends_version("log/a", Some(1), at(1.0), 2, at(9.0)));
        assert!(!rule.ends_version("log/a", None, at(1.5), 2, at(2.5)));
        assert_eq!([2.9, 3.0].map(|now| rule.ends_upload("log/a", at(1.0), at(now))), [false, true]);
        assert!(!rule.ends_object("log/a", 1, at(1.0), at(9.0)) && !rule.ends_lone_marker("log/a", at(1.0), at(9.0)));
        let markers = ObjectRule { removes_lone_markers: true, ..rule };
        assert!(markers.ends_lone_marker("log/a", at(1.0), at(1.0)));
    }

    #[test]
    fn tags_are_all_needed() {
        let tag = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let rule = ObjectRule { tags: vec![tag("a", "1"), tag("b", "2")], ..rule() };
        assert!(rule.has_tags(&[tag("c", "3"), tag("b", "2"), tag("a", "1")]));
        assert!(!rule.has_tags(&[tag("a", "1"), tag("b", "3")]));
    }

    #[test]
    fn malformed_rules_are_refused() {
        let days = |days| ObjectRule { expiry: Some(Expiry::Days(days)), ..rule() };
        assert_eq!(check_rules(&[days(1)]), Ok(()));
        assert_eq!(check_rules(&[]), Err(BadObjectRules::Amount));
        let long = ObjectRule { prefix: "a".repeat(MAX_BYTES), ..days(1) };
        assert_eq!(check_rules(&[long]), Err(BadObjectRules::Amount));
        let tagged = |count| ObjectRule { tags: vec![("a".to_owned(), String::new()); count], ..days(1) };
        assert_eq!(check_rules(&[tagged(MAX_TAGS)]), Ok(()));
        assert_eq!(check_rules(&[tagged(MAX_TAGS + 1)]), Err(BadObjectRules::Amount));
        assert_eq!(check_rules(&[ObjectRule { id: "i".repeat(256), ..days(1) }]), Err(BadObjectRules::LongId));
        assert_eq!(check_rules(&[days(1), days(2)]), Err(BadObjectRules::SameId("r".into())));
        assert_eq!(check_rules(&[rule()]), Err(BadObjectRules::NoAction("r".into())));
        assert_eq!(check_rules(&[days(0)]), Err(BadObjectRules::Days("r".into())));
        let noon = ObjectRule { expiry: Some(Expiry::Date(at(1.5).as_micros())), ..rule() };
        assert_eq!(check_rules(&[noon]), Err(BadObjectRules::Date("r".into())));
        let many = ObjectRule { old_versions: Some(OldVersions { days: 1, kept: 101 }), ..rule() };
        assert_eq!(check_rules(&[many]), Err(BadObjectRules::Kept("r".into())));
        let tagged = ObjectRule { abort_days: Some(1), larger_than: Some(1), ..rule() };
        assert_eq!(check_rules(&[tagged]), Err(BadObjectRules::Filter("r".into())));
        let both = ObjectRule { removes_lone_markers: true, ..days(1) };
        assert_eq!(check_rules(&[both]), Err(BadObjectRules::Marker("r".into())));
    }

    #[test]
    fn next_midnight_is_later() {
        assert_eq!([next_midnight(at(1.0)), next_midnight(at(1.9))], [at(2.0), at(2.0)]);
    }
}
