//! The endpoints of the tag `job`, a file each. `view` is how a job looks in all of them, `links` the URLs that need no key,
//! `upgrade`, `socket` and `places` what the two WebSockets have in common.

pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod files;
pub(crate) mod info;
pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod listen;
pub(crate) mod logs;
pub(crate) mod output;
pub(crate) mod pull;
pub(crate) mod push;
pub(crate) mod start;
pub(crate) mod upload;

mod links;
mod places;
mod range;
mod socket;
mod upgrade;
mod view;

pub(crate) use places::Sockets;

use tarn_api::errors::Location;
use utoipa::ToSchema;

use super::failure::{Failure, error};

/// Bytes as they are.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it only stands in the document")]
struct Binary(Vec<u8>);

/// A refusal of a job that is to be made. What is wrong with its file is wrong with the body of the call.
fn refused(refusal: tarn_control::Error) -> Failure {
    if refusal.code != "invalid_config" {
        return refusal.into();
    }
    let loc = vec![Location::Field("body".to_owned()), Location::Field("tp_config".to_owned())];
    let errors = vec![error(loc, "value_error", refusal.message.as_str())];
    Failure { code: "invalid_config", message: refusal.message, ..Failure::unprocessable(errors) }
}
