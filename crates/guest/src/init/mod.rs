//! What only the first process of an instance does: prepare it before the first login, and end all others when it stops.

mod first_start;
mod image_sudo;
mod stop;

pub use first_start::{install_sudo, prepare};
pub use image_sudo::install_sudo_in_image;
pub use stop::end_all_processes;
