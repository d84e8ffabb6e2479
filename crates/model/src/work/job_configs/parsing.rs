//! Parses a job file key by key.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, ConfigError, Nodes, hints, limits, values};

/// A value with its position.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// The text of a file, to find line numbers.
pub(super) struct Source<'t>(&'t str);

impl Source<'_> {
    /// Returns an error at this position.
    pub(super) fn error_at(&self, span: Range<usize>, what: impl Into<String>) -> ConfigError {
        let before = self.0.as_bytes().get(..span.start).unwrap_or(self.0.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ConfigError { line: Some(line), what: what.into() }
    }
}

/// Parses a job file.
pub fn parse(text: &str) -> Result<Config, ConfigError> {
    let without_line = |what: String| ConfigError { line: None, what };
    if text.len() > limits::TEXT_BYTES {
        let message = format!("the file has {} bytes, and {} are allowed", text.len(), limits::TEXT_BYTES);
        return Err(without_line(message));
    }
    let source = Source(text);
    let table = DeTable::parse(text).map_err(|error| {
        let what = format!("this is not TOML: {}", error.message().trim());
        match error.span() {
            Some(span) => source.error_at(span, what),
            None => without_line(what),
        }
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    // The first error in the file is reported.
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut config = Config { venv: true, ..Config::default() };
    for (key, value) in entries {
        set_key(&source, &mut config, key, value)?;
    }
    if config.commands.is_empty() {
        return Err(without_line("there are no commands; write commands = [\"…\"]".to_owned()));
    }
    Ok(config)
}

fn set_key(
    source: &Source<'_>,
    config: &mut Config,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Value<'_>,
) -> Result<(), ConfigError> {
    match key.get_ref().as_ref() {
        "commands" => config.commands = values::parse_commands(source, value)?,
        "outputs" => config.outputs = values::parse_outputs(source, value)?,
        "ignore" => config.ignore = values::parse_patterns(source, "ignore", value)?,
        "name" => config.name = Some(values::parse_name(source, value)?),
        "env" => config.env = values::parse_variables(source, value)?,
        "nodes" => config.nodes = parse_nodes(source, value)?,
        "timeout" => config.timeout_seconds = Some(values::parse_timeout(source, value)?),
        "retries" => config.retries = values::parse_retries(source, value)?,
        "venv" => match value.get_ref() {
            DeValue::Boolean(venv) => config.venv = *venv,
            other @ (DeValue::String(_) | DeValue::Integer(_) | DeValue::Float(_)) => {
                return Err(no_venv(source, value, other));
            }
            other @ (DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_)) => {
                return Err(no_venv(source, value, other));
            }
        },
        unknown => {
            let what = format!("there is no key {}; {}", quoted(unknown), hints::hint_for_key(unknown));
            return Err(source.error_at(key.span(), what));
        }
    }
    Ok(())
}

fn no_venv(source: &Source<'_>, value: &Value<'_>, other: &DeValue<'_>) -> ConfigError {
    source.error_at(value.span(), format!("venv is true or false, and not {}", kind_name(other)))
}

fn parse_nodes(source: &Source<'_>, value: &Value<'_>) -> Result<Nodes, ConfigError> {
    match value.get_ref() {
        DeValue::String(text) if text == "first" => Ok(Nodes::First),
        DeValue::String(text) if text == "all" => Ok(Nodes::All),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => {
            let what = "nodes is \"first\" or \"all\"; the cluster decides how many there are";
            Err(source.error_at(value.span(), what))
        }
    }
}

/// Names the kind of a value, for a message.
pub(super) fn kind_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Quotes a text of the file for a message: bounded and without control characters.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", tarn_base::plain(text, 60))
}
