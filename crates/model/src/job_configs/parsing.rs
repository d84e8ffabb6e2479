//! Reading a file: its keys, one after the other.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, Nodes, Wrong, hints, limits, values};

/// A value and where it stands.
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// A text, to find lines in.
pub(super) struct Source<'t>(&'t str);

impl Source<'_> {
    /// What is wrong with what stands there.
    pub(super) fn wrong(&self, span: Range<usize>, what: impl Into<String>) -> Wrong {
        let before = self.0.as_bytes().get(..span.start).unwrap_or(self.0.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Wrong { line: Some(line), what: what.into() }
    }
}

/// Reads a file.
pub fn parse(text: &str) -> Result<Config, Wrong> {
    let nowhere = |what: String| Wrong { line: None, what };
    if text.len() > limits::TEXT_BYTES {
        let message = format!("the file has {} bytes, and {} are allowed", text.len(), limits::TEXT_BYTES);
        return Err(nowhere(message));
    }
    let source = Source(text);
    let table = DeTable::parse(text).map_err(|error| {
        let what = format!("this is not TOML: {}", error.message().trim());
        match error.span() {
            Some(span) => source.wrong(span, what),
            None => nowhere(what),
        }
    })?;
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    // What is wrong first is told first.
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut config = Config { venv: true, ..Config::default() };
    for (key, value) in entries {
        take(&source, &mut config, key, value)?;
    }
    if config.commands.is_empty() {
        return Err(nowhere("there are no commands; write commands = [\"…\"]".to_owned()));
    }
    Ok(config)
}

fn take(
    source: &Source<'_>,
    config: &mut Config,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Value<'_>,
) -> Result<(), Wrong> {
    match key.get_ref().as_ref() {
        "commands" => config.commands = values::commands(source, value)?,
        "outputs" => config.outputs = values::outputs(source, value)?,
        "ignore" => config.ignore = values::patterns(source, "ignore", value)?,
        "name" => config.name = Some(values::name(source, value)?),
        "env" => config.env = values::variables(source, value)?,
        "nodes" => config.nodes = nodes(source, value)?,
        "timeout" => config.timeout_seconds = Some(values::timeout(source, value)?),
        "retries" => config.retries = values::retries(source, value)?,
        "venv" => match value.get_ref() {
            DeValue::Boolean(venv) => config.venv = *venv,
            other => return Err(source.wrong(value.span(), format!("venv is true or false, and not {}", a(other)))),
        },
        unknown => {
            let what = format!("there is no key {}; {}", shown(unknown), hints::for_key(unknown));
            return Err(source.wrong(key.span(), what));
        }
    }
    Ok(())
}

fn nodes(source: &Source<'_>, value: &Value<'_>) -> Result<Nodes, Wrong> {
    match value.get_ref() {
        DeValue::String(text) if text == "first" => Ok(Nodes::First),
        DeValue::String(text) if text == "all" => Ok(Nodes::All),
        _ => {
            let what = "nodes is \"first\" or \"all\"; how many there are is a matter of the cluster";
            Err(source.wrong(value.span(), what))
        }
    }
}

/// A value of the kind of this one, in words.
pub(super) fn a(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// What somebody wrote, fit to be repeated: bounded and without control characters.
pub(super) fn shown(text: &str) -> String {
    let clean: String = text.chars().take(60).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    format!("'{clean}'")
}
