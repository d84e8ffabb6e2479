//! The age of the last backup, as a metric.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_model::Clock as _;

use crate::backup::record::LastBackup;
use crate::environment::SystemClock;

/// How often the record is read.
const INTERVAL: Duration = Duration::from_secs(15);

/// Keeps the metric current. Without a backup there is no metric.
pub(crate) async fn measure_age(data: PathBuf) {
    loop {
        if let Some(age) = age_seconds(&data) {
            metrics::gauge!("tarn_backup_age_seconds").set(age);
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn age_seconds(data: &Path) -> Option<f64> {
    match LastBackup::read(data) {
        // A damaged backup is as good as none, for every alert on the age.
        Ok(Some(LastBackup { damaged: Some(_), .. })) => Some(f64::INFINITY),
        Ok(last) => last.map(|last| SystemClock.now().until(last.created()).as_secs_f64()),
        Err(error) => {
            tracing::debug!(%error, "the record of the last backup cannot be read");
            None
        }
    }
}
