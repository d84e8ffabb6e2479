//! The age of the last backup, as a metric.

use std::path::Path;

use tarn_model::Clock as _;

use crate::backup::record::LastBackup;
use crate::environment::SystemClock;

/// Returns the metric as text for a scrape. Without a backup, and when its record is lost or damaged, there is none: an
/// age that does not change any more would look well to an alert.
pub(super) fn render_age(data: &Path) -> String {
    match LastBackup::read(data) {
        Ok(Some(last)) => {
            // A damaged backup is as good as none, for every alert on the age.
            let age = match last.damaged {
                Some(_) => "+Inf".to_owned(),
                None => SystemClock.now().until(last.created()).as_secs_f64().to_string(),
            };
            format!("# TYPE tarn_backup_age_seconds gauge\ntarn_backup_age_seconds {age}\n\n")
        }
        Ok(None) => String::new(),
        Err(error) => {
            tracing::debug!(%error, "the record of the last backup cannot be read");
            String::new()
        }
    }
}
