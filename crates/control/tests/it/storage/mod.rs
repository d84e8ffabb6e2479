//! Volumes: their life, and what happens when nodes die under them.

mod dead_nodes;
mod volumes;
