//! What a run showed, as a line of JSON.

/// The figures of operations that took `milliseconds` each and `seconds` together.
pub fn line(mut milliseconds: Vec<f64>, seconds: f64) -> Result<String, String> {
    milliseconds.sort_by(f64::total_cmp);
    let Some(last) = milliseconds.len().checked_sub(1) else {
        return Err("nothing was done".into());
    };
    let percentile = |part: f64| milliseconds[(last as f64 * part) as usize];
    Ok(format!(
        r#"{{"operations": {}, "seconds": {seconds:.6}, "p50_ms": {:.4}, "p99_ms": {:.4}}}"#,
        milliseconds.len(),
        percentile(0.5),
        percentile(0.99),
    ))
}
