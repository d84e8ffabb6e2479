//! The life of instances: images, restarts, reboots of the host, and deaths.

mod dead_instances;
mod images;
mod reboots;
mod restarts;
mod restored;
