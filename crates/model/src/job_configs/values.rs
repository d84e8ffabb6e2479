//! What each key may hold.

use toml::de::{DeInteger, DeTable, DeValue};

use super::parsing::{Source, Value, a, shown};
use super::{Retries, Wrong, durations, limits};
use crate::names;

pub(super) fn commands(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<String>, Wrong> {
    let list = list(source, "commands", value)?;
    if list.is_empty() {
        return Err(source.wrong(value.span(), "there are no commands; write at least one"));
    }
    if list.len() > limits::COMMANDS {
        let what = format!(
            "there are {} commands, and {} are allowed; put them into a script and run that",
            list.len(),
            limits::COMMANDS
        );
        return Err(source.wrong(value.span(), what));
    }
    let command = |(text, at): (String, &Value<'_>)| match text.len() {
        _ if text.trim().is_empty() => Err(source.wrong(at.span(), "a command is empty; remove it")),
        length if length > limits::COMMAND_BYTES => {
            let what = format!(
                "a command has {length} bytes, and {} are allowed; put it into a script and run that",
                limits::COMMAND_BYTES
            );
            Err(source.wrong(at.span(), what))
        }
        _ => Ok(text),
    };
    list.into_iter().map(command).collect()
}

/// Globs of files to keep. A `./` before one is nothing.
pub(super) fn outputs(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<String>, Wrong> {
    let mut kept = Vec::new();
    for (mut pattern, at) in checked_patterns(source, "outputs", value)? {
        while let Some(rest) = pattern.strip_prefix("./") {
            pattern = rest.to_owned();
        }
        let why = if pattern.is_empty() {
            "is empty; write \"**\" to keep everything"
        } else if pattern.starts_with('/') {
            "is absolute; outputs are relative to the directory of the job"
        } else if pattern.starts_with('~') {
            "begins with '~'; outputs are relative to the directory of the job"
        } else if pattern.split('/').any(|part| part == "..") {
            "has '..' in it; outputs lie in the directory of the job"
        } else {
            kept.push(pattern);
            continue;
        };
        return Err(source.wrong(at.span(), format!("the output {} {why}", shown(&pattern))));
    }
    Ok(kept)
}

pub(super) fn patterns(source: &Source<'_>, key: &str, value: &Value<'_>) -> Result<Vec<String>, Wrong> {
    Ok(checked_patterns(source, key, value)?.into_iter().map(|(pattern, _)| pattern).collect())
}

fn checked_patterns<'v, 't>(
    source: &Source<'_>,
    key: &str,
    value: &'v Value<'t>,
) -> Result<Vec<(String, &'v Value<'t>)>, Wrong> {
    let list = list(source, key, value)?;
    if list.len() > limits::PATTERNS {
        let what = format!("{key} has {} entries, and {} are allowed", list.len(), limits::PATTERNS);
        return Err(source.wrong(value.span(), what));
    }
    for (pattern, at) in &list {
        if pattern.chars().count() > limits::PATTERN_CHARACTERS {
            let what = format!("an entry of {key} is longer than {} characters", limits::PATTERN_CHARACTERS);
            return Err(source.wrong(at.span(), what));
        }
        if pattern.contains(['\n', '\r']) {
            return Err(source.wrong(at.span(), format!("an entry of {key} has more than one line")));
        }
    }
    Ok(list)
}

pub(super) fn name(source: &Source<'_>, value: &Value<'_>) -> Result<String, Wrong> {
    let name = text(source, "name", value)?;
    names::check(&name).map_err(|bad| source.wrong(value.span(), bad.to_string()))?;
    Ok(name)
}

pub(super) fn variables(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<(String, String)>, Wrong> {
    let DeValue::Table(table) = value.get_ref() else {
        let what = format!("env is a table and not {}; write [env] and below it NAME = \"value\"", a(value.get_ref()));
        return Err(source.wrong(value.span(), what));
    };
    if table.len() > limits::VARIABLES {
        let what = format!("env has {} variables, and {} are allowed", table.len(), limits::VARIABLES);
        return Err(source.wrong(value.span(), what));
    }
    let (mut variables, mut bytes) = (Vec::new(), 0);
    for (name, value) in table {
        let (span, name) = (name.span(), name.get_ref().as_ref());
        let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let is_name = name.bytes().next().is_some_and(is_start)
            && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit())
            && name.len() <= limits::VARIABLE_NAME_BYTES;
        if !is_name {
            let what = format!(
                "{} cannot be the name of a variable: use letters, digits and '_', and no digit first",
                shown(name)
            );
            return Err(source.wrong(span, what));
        }
        if limits::KEPT_VARIABLES.contains(&name) {
            return Err(source.wrong(span, format!("{name} says who the user is, and cannot be set")));
        }
        let text = variable(source, name, value)?;
        bytes += text.len();
        if text.len() > limits::VALUE_BYTES || bytes > limits::VALUES_BYTES {
            let what = format!(
                "{name} is too long: a value may have {} bytes, and all together {}",
                limits::VALUE_BYTES,
                limits::VALUES_BYTES
            );
            return Err(source.wrong(value.span(), what));
        }
        variables.push((name.to_owned(), text));
    }
    Ok(variables)
}

/// The value of a variable. Numbers and booleans become the text that they are written as.
fn variable(source: &Source<'_>, name: &str, value: &Value<'_>) -> Result<String, Wrong> {
    match value.get_ref() {
        DeValue::Integer(number) => match integer(number) {
            Some(number) => Ok(number.to_string()),
            None => Err(source.wrong(value.span(), format!("{name} is too large a number; write it as a text"))),
        },
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Ok(flag.to_string()),
        _ => text(source, name, value),
    }
}

pub(super) fn timeout(source: &Source<'_>, value: &Value<'_>) -> Result<u64, Wrong> {
    let seconds = match value.get_ref() {
        DeValue::Integer(number) => integer(number).and_then(|number| u64::try_from(number).ok()),
        DeValue::String(text) => durations::seconds(text),
        _ => None,
    };
    match seconds {
        Some(seconds @ 1..=limits::TIMEOUT_SECONDS) => Ok(seconds),
        _ => {
            let what = "timeout is a number of seconds, or a text such as \"90s\", \"30m\", \"2h\" or \"1h30m\": at least a \
                        second, and at most 365 days";
            Err(source.wrong(value.span(), what))
        }
    }
}

pub(super) fn retries(source: &Source<'_>, value: &Value<'_>) -> Result<Retries, Wrong> {
    match value.get_ref() {
        DeValue::Integer(_) => Ok(Retries { count: count(source, value)?, exit_codes: Vec::new() }),
        DeValue::Table(table) => retries_table(source, value, table),
        other => {
            let what = format!(
                "retries is a number, or a table such as {{ count = 2, exit_codes = [75] }}, and not {}",
                a(other)
            );
            Err(source.wrong(value.span(), what))
        }
    }
}

fn retries_table(source: &Source<'_>, value: &Value<'_>, table: &DeTable<'_>) -> Result<Retries, Wrong> {
    let mut retries = Retries::default();
    let mut has_count = false;
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "count" => {
                retries.count = count(source, value)?;
                has_count = true;
            }
            "exit_codes" => retries.exit_codes = exit_codes(source, value)?,
            unknown => {
                let what = format!("there is no key {} in retries; there are count and exit_codes", shown(unknown));
                return Err(source.wrong(key.span(), what));
            }
        }
    }
    match has_count {
        true => Ok(retries),
        false => Err(source.wrong(value.span(), "retries says not how often; write retries = { count = 2, … }")),
    }
}

fn count(source: &Source<'_>, value: &Value<'_>) -> Result<u32, Wrong> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => integer(number).and_then(|number| u32::try_from(number).ok()),
        _ => None,
    };
    let what = || source.wrong(value.span(), format!("retries is a number from 0 to {}", limits::RETRIES));
    number.filter(|number| *number <= limits::RETRIES).ok_or_else(what)
}

fn exit_codes(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<u8>, Wrong> {
    let what = "exit_codes is a list of numbers from 1 to 255";
    let DeValue::Array(array) = value.get_ref() else { return Err(source.wrong(value.span(), what)) };
    let mut codes = Vec::new();
    for value in array.iter() {
        let code = match value.get_ref() {
            DeValue::Integer(number) => integer(number).and_then(|number| u8::try_from(number).ok()),
            _ => None,
        };
        codes.push(code.filter(|code| *code > 0).ok_or_else(|| source.wrong(value.span(), what))?);
    }
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
}

/// A list of texts, each with where it stands.
fn list<'v, 't>(source: &Source<'_>, key: &str, value: &'v Value<'t>) -> Result<Vec<(String, &'v Value<'t>)>, Wrong> {
    match value.get_ref() {
        DeValue::Array(array) => {
            array.iter().map(|one| Ok((text(source, &format!("an entry of {key}"), one)?, one))).collect()
        }
        DeValue::String(_) => {
            Err(source.wrong(value.span(), format!("{key} is a list; write {key} = [\"…\"] with brackets")))
        }
        other => Err(source.wrong(value.span(), format!("{key} is a list of texts, and not {}", a(other)))),
    }
}

fn text(source: &Source<'_>, key: &str, value: &Value<'_>) -> Result<String, Wrong> {
    match value.get_ref() {
        DeValue::String(text) if text.contains('\0') => {
            Err(source.wrong(value.span(), format!("{key} has a NUL character in it")))
        }
        DeValue::String(text) => Ok(text.to_string()),
        other => Err(source.wrong(value.span(), format!("{key} is a text in quotes, and not {}", a(other)))),
    }
}

fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}
