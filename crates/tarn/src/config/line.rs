//! The `[line]` section: when claims that wait for capacity reserve it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tarn_model::line::Rules;

use crate::failure::{Failure, Result};

/// A year: no claim waits longer.
const MAX_SECONDS: u64 = 365 * 24 * 3600;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Line {
    reserve_after_seconds: u64,
    reserve_for_seconds: u64,
}

impl Default for Line {
    fn default() -> Self {
        let rules = Rules::default();
        Line { reserve_after_seconds: rules.reserve_after.as_secs(), reserve_for_seconds: rules.reserve_for.as_secs() }
    }
}

impl Line {
    pub(super) fn check(&self) -> Result<()> {
        for (what, value) in
            [("reserve_after_seconds", self.reserve_after_seconds), ("reserve_for_seconds", self.reserve_for_seconds)]
        {
            if !(1..=MAX_SECONDS).contains(&value) {
                return Err(Failure(format!("line.{what} must be at least 1 and at most {MAX_SECONDS}")));
            }
        }
        Ok(())
    }

    pub(super) fn rules(&self) -> Rules {
        Rules {
            reserve_after: Duration::from_secs(self.reserve_after_seconds),
            reserve_for: Duration::from_secs(self.reserve_for_seconds),
        }
    }
}
