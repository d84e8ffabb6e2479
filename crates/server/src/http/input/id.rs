//! The id or name that ends the path of most routes.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::App;

/// The last segment of the path, decoded. It may be any text: `control` checks whether it names something.
pub(crate) struct Id(pub(crate) String);

impl FromRequestParts<App> for Id {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Infallible> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(id)) => Ok(Id(id)),
            // What is no UTF-8 names nothing.
            Err(_) => Ok(Id(parts.uri.path().rsplit('/').next().unwrap_or_default().to_owned())),
        }
    }
}
