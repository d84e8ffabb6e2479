//! What the first process of an instance does: take over descriptors from the driver, prepare the instance before the
//! first login, and end all other processes when it stops.

mod first_start;
mod image_sudo;
mod inherited_descriptors;
mod stop;

pub use first_start::{install_sudo, prepare_instance};
pub use image_sudo::install_sudo_in_image;
pub use inherited_descriptors::{keep_exit_marker, take_control_socket, write_exit_marker};
pub use stop::end_all_processes;
