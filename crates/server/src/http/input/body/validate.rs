//! Validates bodies against their schemas.

use std::collections::HashMap;

use jsonschema::Validator;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tarn_api::errors::{Location, ValidationError};
use utoipa::ToSchema;

use super::{json, pydantic, unknown_keys};
use crate::http::openapi::openapi_document;
use crate::http::output::failure::{Failure, validation_error};

/// How many errors of one body are reported; a longer list would not be read.
const MAX_ERRORS: usize = 100;

/// A body that an endpoint takes.
pub(crate) trait Body: DeserializeOwned + ToSchema {
    /// Alternative names that some clients use, each with its field.
    const ALIASES: &'static [(&'static str, &'static str)] = &[];

    /// Fields that some clients leave out, each with what to do.
    const HINTS: &'static [(&'static str, &'static str)] = &[];

    /// Whether keys are reported that the schema does not have. This is for operations of the original API, which
    /// ignore such keys; the schemas of all others refuse them.
    const REPORTS_UNKNOWN_KEYS: bool = true;
}

/// A validator for every body in the document, compiled once.
pub(crate) struct Validators {
    document: &'static Value,
    by_schema: HashMap<String, Validator>,
}

/// What a body is, and what its sender should know about it.
pub(crate) struct Parsed<B> {
    /// The body, or all its errors.
    pub(crate) body: Result<B, Failure>,
    /// A sentence for each key that was ignored.
    pub(crate) warnings: Vec<String>,
}

impl<B> Parsed<B> {
    fn failed(failure: Failure) -> Self {
        Parsed { body: Err(failure), warnings: Vec::new() }
    }
}

impl Validators {
    /// Compiles the schemas of all bodies of our own OpenAPI document.
    pub(crate) fn from_document() -> Self {
        let document = openapi_document();
        let operations = document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
        let operations = operations.filter_map(Value::as_object).flat_map(|path| path.values());
        let references = operations
            .filter_map(|operation| operation.pointer("/requestBody/content/application~1json/schema/$ref"))
            .filter_map(Value::as_str);
        let compile = |reference: &str| {
            let schema = serde_json::json!({ "$ref": reference, "components": document["components"] });
            let validator = jsonschema::validator_for(&schema).expect("our own document holds only sound schemas");
            (reference.rsplit('/').next().unwrap_or_default().to_owned(), validator)
        };
        Validators { document, by_schema: references.map(compile).collect() }
    }

    /// Parses the text of a body.
    pub(crate) fn parse<B: Body>(&self, text: &[u8]) -> Parsed<B> {
        let mut value = match read_json(text) {
            Ok(value) => value,
            Err(error) => return Parsed::failed(Failure::unprocessable(vec![error])),
        };
        let renamed = resolve_aliases(&mut value, B::ALIASES);
        let schema = serde_json::json!({ "$ref": format!("#/components/schemas/{}", B::name()) });
        let warnings = if B::REPORTS_UNKNOWN_KEYS {
            unknown_keys::describe_unknown_keys(self.document, &schema, &value)
        } else {
            Vec::new()
        };
        Parsed { body: self.validate(value, &renamed), warnings }
    }

    fn validate<B: Body>(&self, value: Value, renamed: &[(&str, &str)]) -> Result<B, Failure> {
        let name = B::name();
        let validator = self.by_schema.get(name.as_ref());
        let validator =
            validator.ok_or_else(|| Failure::internal(format!("no operation documents the body {name}")))?;
        let mut errors: Vec<ValidationError> =
            validator.iter_errors(&value).flat_map(|error| pydantic::describe_error(&error)).take(MAX_ERRORS).collect();
        if errors.is_empty() {
            // What the schema accepts and the type does not is a number out of range.
            return serde_json::from_value(value).map_err(|cause| {
                Failure::unprocessable(vec![validation_error(
                    vec![body_location()],
                    "value_error",
                    format!("Value error, {cause}"),
                )])
            });
        }
        errors.iter_mut().for_each(|error| pydantic::restore_alias(error, renamed));
        errors.iter_mut().for_each(|error| pydantic::add_hint(error, B::HINTS));
        Err(Failure::unprocessable(errors))
    }
}

fn read_json(text: &[u8]) -> Result<Value, ValidationError> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(validation_error(vec![body_location()], "missing", "Field required"));
    }
    json::parse_strict(text).map_err(|malformed| {
        let offset = Location::Index(i64::try_from(malformed.offset).unwrap_or(i64::MAX));
        validation_error(
            vec![body_location(), offset],
            "json_invalid",
            format!("JSON decode error: {}", malformed.reason),
        )
    })
}

/// Renames aliases to their fields. If both are present, the alias is an unknown field.
fn resolve_aliases(
    value: &mut Value,
    aliases: &'static [(&'static str, &'static str)],
) -> Vec<(&'static str, &'static str)> {
    let Value::Object(object) = value else {
        return Vec::new();
    };
    let mut renamed = Vec::new();
    for (alias, field) in aliases {
        if object.contains_key(*field) {
            continue;
        }
        if let Some(value) = object.remove(*alias) {
            object.insert((*field).to_owned(), value);
            renamed.push((*alias, *field));
        }
    }
    renamed
}

fn body_location() -> Location {
    Location::Field("body".to_owned())
}
