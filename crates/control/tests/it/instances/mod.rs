//! The life of instances: images, restarts, reboots of the host, and deaths.

mod dead_instances;
mod images;
mod reboot_deadlines;
mod reboots;
mod restarts;
mod restored;
