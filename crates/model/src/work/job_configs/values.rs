//! Parses the value of each key.

use toml::de::{DeInteger, DeTable, DeValue};

use super::parsing::{Source, Value, kind_name, quoted};
use super::{ConfigError, Retries, durations, limits};
use crate::names;

pub(super) fn parse_commands(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
    let list = parse_list(source, "commands", value)?;
    if list.is_empty() {
        return Err(source.error_at(value.span(), "there are no commands; write at least one"));
    }
    if list.len() > limits::COMMANDS {
        let what = format!(
            "there are {} commands, and {} are allowed; put them into a script and run that",
            list.len(),
            limits::COMMANDS
        );
        return Err(source.error_at(value.span(), what));
    }
    let command = |(text, at): (String, &Value<'_>)| match text.len() {
        _ if text.trim().is_empty() => Err(source.error_at(at.span(), "a command is empty; remove it")),
        length if length > limits::COMMAND_BYTES => {
            let what = format!(
                "a command has {length} bytes, and {} are allowed; put it into a script and run that",
                limits::COMMAND_BYTES
            );
            Err(source.error_at(at.span(), what))
        }
        _ => Ok(text),
    };
    list.into_iter().map(command).collect()
}

/// Parses the globs of files to keep. A leading `./` is removed.
pub(super) fn parse_outputs(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
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
            "has '..' in it; outputs are in the directory of the job"
        } else {
            kept.push(pattern);
            continue;
        };
        return Err(source.error_at(at.span(), format!("the output {} {why}", quoted(&pattern))));
    }
    Ok(kept)
}

pub(super) fn parse_patterns(source: &Source<'_>, key: &str, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
    Ok(checked_patterns(source, key, value)?.into_iter().map(|(pattern, _)| pattern).collect())
}

fn checked_patterns<'v, 't>(
    source: &Source<'_>,
    key: &str,
    value: &'v Value<'t>,
) -> Result<Vec<(String, &'v Value<'t>)>, ConfigError> {
    let list = parse_list(source, key, value)?;
    if list.len() > limits::PATTERNS {
        let what = format!("{key} has {} entries, and {} are allowed", list.len(), limits::PATTERNS);
        return Err(source.error_at(value.span(), what));
    }
    for (pattern, at) in &list {
        if pattern.chars().count() > limits::PATTERN_CHARACTERS {
            let what = format!("an entry of {key} is longer than {} characters", limits::PATTERN_CHARACTERS);
            return Err(source.error_at(at.span(), what));
        }
        if pattern.contains(['\n', '\r']) {
            return Err(source.error_at(at.span(), format!("an entry of {key} has more than one line")));
        }
    }
    check_wildcards(source, key, value, &list)?;
    Ok(list)
}

/// Refuses patterns that would take very long to match: each wildcard adds to the work for every byte of every name.
fn check_wildcards(
    source: &Source<'_>,
    key: &str,
    value: &Value<'_>,
    list: &[(String, &Value<'_>)],
) -> Result<(), ConfigError> {
    let (mut bytes, mut all) = (0, 0);
    for (pattern, at) in list {
        let (stars, wildcards) = count_wildcards(pattern);
        for (found, allowed, what) in
            [(stars, limits::PATTERN_STARS, "stars"), (wildcards, limits::PATTERN_WILDCARDS, "wildcards")]
        {
            if found > allowed {
                let text =
                    format!("an entry of {key} has {found} {what}, and {allowed} are allowed; write a simpler one");
                return Err(source.error_at(at.span(), text));
            }
        }
        bytes += pattern.len();
        all += wildcards;
    }
    for (found, allowed, what) in
        [(bytes, limits::PATTERNS_BYTES, "bytes"), (all, limits::PATTERNS_WILDCARDS, "wildcards")]
    {
        if found > allowed {
            let text = format!(
                "the entries of {key} have {found} {what} together, and {allowed} are allowed; name directories instead \
                 of what is in them"
            );
            return Err(source.error_at(value.span(), text));
        }
    }
    Ok(())
}

/// Returns the number of stars and of all wildcards of a pattern. Several stars in a row are one, and a character
/// after a backslash is none.
fn count_wildcards(pattern: &str) -> (usize, usize) {
    let (mut stars, mut others, mut previous) = (0, 0, ' ');
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => drop(characters.next()),
            '*' if previous != '*' => stars += 1,
            '?' | '[' | '{' | ',' => others += 1,
            _ => {}
        }
        previous = character;
    }
    (stars, stars + others)
}

pub(super) fn parse_name(source: &Source<'_>, value: &Value<'_>) -> Result<String, ConfigError> {
    let name = parse_text(source, "name", value)?;
    names::check(&name).map_err(|bad| source.error_at(value.span(), bad.to_string()))?;
    Ok(name)
}

pub(super) fn parse_variables(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<(String, String)>, ConfigError> {
    let DeValue::Table(table) = value.get_ref() else {
        let what =
            format!("env is a table and not {}; write [env] and below it NAME = \"value\"", kind_name(value.get_ref()));
        return Err(source.error_at(value.span(), what));
    };
    if table.len() > limits::VARIABLES {
        let what = format!("env has {} variables, and {} are allowed", table.len(), limits::VARIABLES);
        return Err(source.error_at(value.span(), what));
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
                quoted(name)
            );
            return Err(source.error_at(span, what));
        }
        if limits::RESERVED_VARIABLES.contains(&name) {
            return Err(source.error_at(span, format!("{name} identifies the user, and cannot be set")));
        }
        let text = parse_variable(source, name, value)?;
        bytes += text.len();
        if text.len() > limits::VALUE_BYTES || bytes > limits::VALUES_BYTES {
            let what = format!(
                "{name} is too long: a value may have {} bytes, and all together {}",
                limits::VALUE_BYTES,
                limits::VALUES_BYTES
            );
            return Err(source.error_at(value.span(), what));
        }
        variables.push((name.to_owned(), text));
    }
    Ok(variables)
}

/// Parses the value of a variable. Numbers and booleans become the text that they are written as.
fn parse_variable(source: &Source<'_>, name: &str, value: &Value<'_>) -> Result<String, ConfigError> {
    match value.get_ref() {
        DeValue::Integer(number) => match to_i64(number) {
            Some(number) => Ok(number.to_string()),
            None => Err(source.error_at(value.span(), format!("{name} is too large a number; write it as a text"))),
        },
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Ok(flag.to_string()),
        DeValue::String(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            parse_text(source, name, value)
        }
    }
}

pub(super) fn parse_timeout(source: &Source<'_>, value: &Value<'_>) -> Result<u64, ConfigError> {
    let seconds = match value.get_ref() {
        DeValue::Integer(number) => to_i64(number).and_then(|number| u64::try_from(number).ok()),
        DeValue::String(text) => durations::parse_seconds(text),
        DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) => None,
        DeValue::Array(_) | DeValue::Table(_) => None,
    };
    match seconds {
        Some(seconds @ 1..=limits::TIMEOUT_SECONDS) => Ok(seconds),
        _ => {
            let what = "timeout is a number of seconds, or a text such as \"90s\", \"30m\", \"2h\" or \"1h30m\": at least a \
                        second, and at most 365 days";
            Err(source.error_at(value.span(), what))
        }
    }
}

pub(super) fn parse_retries(source: &Source<'_>, value: &Value<'_>) -> Result<Retries, ConfigError> {
    match value.get_ref() {
        DeValue::Integer(_) => Ok(Retries { count: parse_count(source, value)?, exit_codes: Vec::new() }),
        DeValue::Table(table) => parse_retries_table(source, value, table),
        other @ (DeValue::String(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)) => {
            let what = format!(
                "retries is a number, or a table such as {{ count = 2, exit_codes = [75] }}, and not {}",
                kind_name(other)
            );
            Err(source.error_at(value.span(), what))
        }
    }
}

fn parse_retries_table(source: &Source<'_>, value: &Value<'_>, table: &DeTable<'_>) -> Result<Retries, ConfigError> {
    let mut retries = Retries::default();
    let mut has_count = false;
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "count" => {
                retries.count = parse_count(source, value)?;
                has_count = true;
            }
            "exit_codes" => retries.exit_codes = parse_exit_codes(source, value)?,
            unknown => {
                let what = format!("there is no key {} in retries; there are count and exit_codes", quoted(unknown));
                return Err(source.error_at(key.span(), what));
            }
        }
    }
    if has_count {
        Ok(retries)
    } else {
        Err(source.error_at(value.span(), "retries does not say how often; write retries = { count = 2, … }"))
    }
}

fn parse_count(source: &Source<'_>, value: &Value<'_>) -> Result<u32, ConfigError> {
    let number = match value.get_ref() {
        DeValue::Integer(number) => to_i64(number).and_then(|number| u32::try_from(number).ok()),
        DeValue::String(_) | DeValue::Float(_) | DeValue::Boolean(_) => None,
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    };
    let what = || source.error_at(value.span(), format!("retries is a number from 0 to {}", limits::RETRIES));
    number.filter(|number| *number <= limits::RETRIES).ok_or_else(what)
}

fn parse_exit_codes(source: &Source<'_>, value: &Value<'_>) -> Result<Vec<u8>, ConfigError> {
    let what = "exit_codes is a list of numbers from 1 to 255";
    let DeValue::Array(array) = value.get_ref() else { return Err(source.error_at(value.span(), what)) };
    let mut codes = Vec::new();
    for value in array.iter() {
        let code = match value.get_ref() {
            DeValue::Integer(number) => to_i64(number).and_then(|number| u8::try_from(number).ok()),
            DeValue::String(_) | DeValue::Float(_) | DeValue::Boolean(_) => None,
            DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
        };
        codes.push(code.filter(|code| *code > 0).ok_or_else(|| source.error_at(value.span(), what))?);
    }
    codes.sort_unstable();
    codes.dedup();
    Ok(codes)
}

/// Parses a list of texts, each with its position.
fn parse_list<'v, 't>(
    source: &Source<'_>,
    key: &str,
    value: &'v Value<'t>,
) -> Result<Vec<(String, &'v Value<'t>)>, ConfigError> {
    match value.get_ref() {
        DeValue::Array(array) => {
            array.iter().map(|one| Ok((parse_text(source, &format!("an entry of {key}"), one)?, one))).collect()
        }
        DeValue::String(_) => {
            Err(source.error_at(value.span(), format!("{key} is a list; write {key} = [\"…\"] with brackets")))
        }
        other @ (DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_)) => {
            Err(source.error_at(value.span(), format!("{key} is a list of texts, and not {}", kind_name(other))))
        }
    }
}

fn parse_text(source: &Source<'_>, key: &str, value: &Value<'_>) -> Result<String, ConfigError> {
    match value.get_ref() {
        DeValue::String(text) if text.contains('\0') => {
            Err(source.error_at(value.span(), format!("{key} has a NUL character in it")))
        }
        DeValue::String(text) => Ok(text.to_string()),
        other @ (DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_)) => {
            Err(source.error_at(value.span(), format!("{key} is a text in quotes, and not {}", kind_name(other))))
        }
    }
}

fn to_i64(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}
