//! The response of every refused call.

use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The body of every response that is not a success, except that 422 has a list as `detail`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What happened and what to do next.
    pub message: String,
    /// The same text, under the name that some clients read.
    pub detail: String,
    /// A stable code for programs, such as `deletion_protected`.
    pub code: String,
    /// The id of this call, as in the header `x-request-id` and in the engine's log.
    pub request_id: String,
}

/// The body of a 422: everything that is wrong with the input, at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(description = "")]
pub struct HTTPValidationError {
    #[serde(default)]
    #[allow(missing_docs)]
    pub detail: Vec<ValidationError>,
    /// Every error in one text, for a person.
    #[serde(default)]
    pub message: String,
    /// A stable word for machines.
    #[serde(default)]
    pub code: String,
    /// The id of this call, as in the header `x-request-id` and in the engine's log.
    #[serde(default)]
    pub request_id: String,
}

/// One thing that is wrong with the input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidationError {
    /// The way to it: `body`, `query` or `header`, then names of fields and positions in lists.
    pub loc: Vec<Location>,
    /// What is wrong, for a person.
    pub msg: String,
    /// What is wrong, for a machine.
    #[serde(rename = "type")]
    pub kind: String,
}

/// One step of the way to an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Location {
    /// The name of a field.
    Field(String),
    /// The position in a list, or in the text of a body that is no JSON.
    Index(i64),
}

/// Written by hand, because its titles do not follow from field names.
impl PartialSchema for ValidationError {
    fn schema() -> RefOr<Schema> {
        let of = |kind: Type| ObjectBuilder::new().schema_type(kind);
        let step = AnyOfBuilder::new().item(of(Type::String)).item(of(Type::Integer));
        ObjectBuilder::new()
            .property("loc", ArrayBuilder::new().items(step).title(Some("Location")))
            .property("msg", of(Type::String).title(Some("Message")))
            .property("type", of(Type::String).title(Some("Error Type")))
            .required("loc")
            .required("msg")
            .required("type")
            .into()
    }
}

impl ToSchema for ValidationError {}
