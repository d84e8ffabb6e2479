//! Limits as clients see them.

use tarn_api::admin::{AdminLimitsInfo, LimitSet, LimitUsage};
use tarn_control::operations::limits::LimitsView;
use tarn_model::limits::{Amounts, Limits};

use crate::http::table::Table;

/// Bytes of a gigabyte.
const GIGABYTE: f64 = 1e9;

pub(super) fn info(view: &LimitsView) -> AdminLimitsInfo {
    AdminLimitsInfo {
        scope: view.scope.clone(),
        own: set(&view.own),
        limits: set(&view.limits),
        used: usage(&view.used),
        message: text(view),
    }
}

/// Limits in the units of the API.
pub(crate) fn set(limits: &Limits) -> LimitSet {
    LimitSet {
        instances: limits.instances,
        cpus: limits.cpu_milli.map(|milli| milli as f64 / 1000.0),
        gpus: limits.gpus,
        volume_gb: limits.volume_gb,
        object_gb: limits.object_bytes.map(|bytes| bytes as f64 / GIGABYTE),
    }
}

/// What is had, in the units of the API.
pub(crate) fn usage(used: &Amounts) -> LimitUsage {
    LimitUsage {
        instances: used.instances,
        cpus: used.cpu_milli as f64 / 1000.0,
        gpus: used.gpus,
        volume_gb: used.volume_gb,
        object_gb: used.object_bytes as f64 / GIGABYTE,
    }
}

/// A limit in the API's unit as it is kept; the schema has bounded it.
pub(super) fn kept(amount: f64, unit: f64) -> u64 {
    (amount * unit).round() as u64
}

pub(super) const CPU: f64 = 1000.0;
pub(super) const OBJECTS: f64 = GIGABYTE;

fn text(view: &LimitsView) -> String {
    let (own, all, used) = (set(&view.own), set(&view.limits), usage(&view.used));
    let mut table = Table::new(["LIMIT", "MAY HAVE", "HAS", "SET BY"], 5);
    for (what, own, limit, used) in [
        ("instances", own.instances.is_some(), shown(all.instances), used.instances.to_string()),
        ("CPUs", own.cpus.is_some(), shown(all.cpus), used.cpus.to_string()),
        ("GPUs", own.gpus.is_some(), shown(all.gpus), used.gpus.to_string()),
        ("volumes (GB)", own.volume_gb.is_some(), shown(all.volume_gb), used.volume_gb.to_string()),
        ("objects (GB)", own.object_gb.is_some(), shown(all.object_gb), used.object_gb.to_string()),
    ] {
        table.row([&what, &limit, &used, &if own { "an administrator" } else { "the configuration" }]);
    }
    format!("Limits of {}\n\n{}", view.scope, table.render())
}

/// What is had of what may be had, for a cell.
pub(super) fn of(used: &impl ToString, limit: Option<impl ToString>) -> String {
    match limit {
        Some(limit) => format!("{} of {}", used.to_string(), limit.to_string()),
        None => used.to_string(),
    }
}

fn shown(limit: Option<impl ToString>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}
