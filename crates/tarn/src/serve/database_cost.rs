//! What the engine asks of its database, as metrics.

use std::time::Duration;

use tarn_store::Store;

/// How often the metrics are updated.
const INTERVAL: Duration = Duration::from_secs(5);

/// Keeps the metrics current.
pub(crate) async fn count_statements(store: Store) {
    loop {
        let cost = store.cost();
        metrics::counter!("tarn_database_statements_total").absolute(cost.statements);
        metrics::counter!("tarn_database_rows_total").absolute(cost.rows);
        tokio::time::sleep(INTERVAL).await;
    }
}
