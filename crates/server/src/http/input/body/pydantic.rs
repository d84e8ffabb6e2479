//! Describes schema errors with the types and texts of pydantic, which clients of the original API know.

use jsonschema::JsonType;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::paths::LocationSegment;
use serde_json::Value;
use tarn_api::errors::{Location, ValidationError};
use tarn_base::plain;

use crate::http::input::query::join_with_or;
use crate::http::output::failure::validation_error;

/// How much of a key is shown that a schema does not have, and how many are named.
const MAX_KEY: usize = 60;
const MAX_KEYS: usize = 20;

/// Describes one schema error. For a nullable field it describes the errors of the value, and not that the value is not
/// null.
pub(super) fn describe_error(found: &jsonschema::ValidationError<'_>) -> Vec<ValidationError> {
    if let Kind::AnyOf { context } = found.kind() {
        let wanted = context.iter().find(|errors| !errors.iter().any(wants_null));
        return wanted.into_iter().flatten().flat_map(describe_error).collect();
    }
    let mut loc = vec![Location::Field("body".to_owned())];
    loc.extend(found.instance_path().segments().map(|segment| match segment {
        LocationSegment::Property(name) => Location::Field(name.into_owned()),
        LocationSegment::Index(at) => Location::Index(i64::try_from(at).unwrap_or(i64::MAX)),
    }));
    if let Kind::Required { property } = found.kind() {
        loc.push(Location::Field(property.as_str().unwrap_or_default().to_owned()));
    }
    if let Kind::AdditionalProperties { unexpected } = found.kind() {
        let error = |key: &String| {
            let key = Location::Field(plain(key, MAX_KEY).into_owned());
            let loc = loc.iter().cloned().chain([key]).collect();
            validation_error(loc, "extra_forbidden", "Extra inputs are not permitted")
        };
        return unexpected.iter().take(MAX_KEYS).map(error).collect();
    }
    let (kind, msg) = error_text(found.kind(), found.instance());
    vec![validation_error(loc, kind, msg)]
}

/// Replaces the name of a field by the alias that the caller used.
pub(super) fn restore_alias(error: &mut ValidationError, renamed: &[(&str, &str)]) {
    if let Some(Location::Field(name)) = error.loc.get_mut(1)
        && let Some((alias, _)) = renamed.iter().find(|(_, field)| field == name)
    {
        *name = (*alias).to_owned();
    }
}

/// Adds what to do to the error of a missing field.
pub(super) fn add_hint(error: &mut ValidationError, hints: &[(&str, &str)]) {
    if let ("missing", Some(Location::Field(name))) = (error.kind.as_str(), error.loc.get(1))
        && let Some((_, hint)) = hints.iter().find(|(field, _)| field == name)
    {
        error.msg = format!("{}: {hint}", error.msg);
    }
}

fn wants_null(found: &jsonschema::ValidationError<'_>) -> bool {
    matches!(found.kind(), Kind::Type { kind: TypeKind::Single(JsonType::Null) })
}

fn error_text(kind: &Kind, instance: &Value) -> (&'static str, String) {
    match kind {
        Kind::Required { .. } => ("missing", "Field required".to_owned()),
        Kind::Type { kind: TypeKind::Single(wanted) } => type_error(*wanted, instance),
        Kind::Minimum { limit } => ("greater_than_equal", format!("Input should be greater than or equal to {limit}")),
        Kind::ExclusiveMinimum { limit } => ("greater_than", format!("Input should be greater than {limit}")),
        Kind::Maximum { limit } => ("less_than_equal", format!("Input should be less than or equal to {limit}")),
        Kind::ExclusiveMaximum { limit } => ("less_than", format!("Input should be less than {limit}")),
        Kind::MinItems { limit } => ("too_short", item_count_error("at least", *limit, instance)),
        Kind::MaxItems { limit } => ("too_long", item_count_error("at most", *limit, instance)),
        Kind::MinLength { limit } => ("string_too_short", length_error("at least", *limit)),
        Kind::MaxLength { limit } => ("string_too_long", length_error("at most", *limit)),
        Kind::Enum { options } => {
            let options = options.as_array().into_iter().flatten();
            let options: Vec<String> = options.filter_map(Value::as_str).map(|word| format!("'{word}'")).collect();
            ("enum", format!("Input should be {}", join_with_or(&options)))
        }
        other => ("value_error", format!("Value error, the rule '{}' is violated", other.keyword())),
    }
}

fn type_error(wanted: JsonType, instance: &Value) -> (&'static str, String) {
    let (kind, msg) = match wanted {
        JsonType::String => ("string_type", "Input should be a valid string"),
        JsonType::Integer if instance.is_f64() => {
            ("int_from_float", "Input should be a valid integer, got a number with a fractional part")
        }
        JsonType::Integer => ("int_type", "Input should be a valid integer"),
        JsonType::Number => ("float_type", "Input should be a valid number"),
        JsonType::Boolean => ("bool_type", "Input should be a valid boolean"),
        JsonType::Array => ("list_type", "Input should be a valid list"),
        JsonType::Object => {
            ("model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
        }
        JsonType::Null => ("none_required", "Input should be None"),
    };
    (kind, msg.to_owned())
}

fn item_count_error(bound: &str, limit: u64, instance: &Value) -> String {
    let plural = if limit == 1 { "item" } else { "items" };
    let has = instance.as_array().map_or(0, Vec::len);
    format!("List should have {bound} {limit} {plural} after validation, not {has}")
}

fn length_error(bound: &str, limit: u64) -> String {
    format!("String should have {bound} {limit} {}", if limit == 1 { "character" } else { "characters" })
}
