//! The run settings of a container image.

use serde::{Deserialize, Serialize};

/// How the programs of a container image run. The driver passes it to the guest as JSON in the environment variable
/// [`Image::VARIABLE`]; an instance of the built-in image has no such variable. Its contents come from the author of
/// the image, so the guest trusts none of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The environment variables, in the order of the image.
    pub environment: Vec<(String, String)>,
    /// The user as the image names it: `app`, `1000`, `1000:1000`, `app:staff`. `None` means `root`.
    pub user: Option<String>,
    /// The working directory.
    pub directory: Option<String>,
}

impl Image {
    /// The environment variable of the guest that holds the image settings.
    pub const VARIABLE: &'static str = "TARN_IMAGE";
}
