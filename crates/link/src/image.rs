//! What a container image says about how its programs are run.

use serde::{Deserialize, Serialize};

/// What an image says about how its programs are run. The driver hands it to the guest, as JSON in the variable
/// [`Image::VARIABLE`] of the guest's environment; an instance of the built-in image has no such variable. It was written by
/// whoever made the image, so the guest trusts none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The variables of its programs, in the image's order.
    pub environment: Vec<(String, String)>,
    /// Who runs its programs, as the image has it: `app`, `1000`, `1000:1000`, `app:staff`. None is `root`.
    pub user: Option<String>,
    /// Where its programs begin.
    pub directory: Option<String>,
}

impl Image {
    /// The variable of the guest's environment that holds it.
    pub const VARIABLE: &'static str = "TARN_IMAGE";
}
