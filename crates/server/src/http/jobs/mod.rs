//! The endpoints of the tag `job`; those that move files are in `transfer`. `push` and `listen` are WebSockets and
//! share `websocket`. `view` renders a job for all of them.

pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod listen;
pub(crate) mod logs;
pub(crate) mod push;
pub(crate) mod start;
pub(crate) mod transfer;

mod view;
mod websocket;

pub(crate) use websocket::SocketLimits;

use tarn_api::errors::Location;
use utoipa::ToSchema;

use crate::http::output::failure::{Failure, validation_error};

/// A binary body.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "only the OpenAPI document uses it")]
struct Binary(Vec<u8>);

/// Converts the refusal of a new job. An error of its file is an error of the body of the call.
fn creation_failure(refusal: tarn_control::Error) -> Failure {
    if refusal.code != "invalid_config" {
        return refusal.into();
    }
    let loc = vec![Location::Field("body".to_owned()), Location::Field("tp_config".to_owned())];
    let errors = vec![validation_error(loc, "value_error", refusal.message.as_str())];
    Failure { code: "invalid_config", message: refusal.message, ..Failure::unprocessable(errors) }
}
