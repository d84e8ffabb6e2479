//! Jobs from the call that creates them to their removal, on guests that simulate commands. `guests` are the guests.

mod after_end;
mod attempts;
mod clusters;
mod guests;
mod logs;
pub(crate) mod operations;
mod outputs;
mod space;
mod support;
mod uploads;
