//! Jobs from the call that creates them to their removal, on guests that simulate commands. `support` has the guests.

mod after_end;
mod attempts;
mod logs;
pub(crate) mod operations;
mod outputs;
mod space;
mod support;
mod uploads;
