//! The terminal: printed text and tables, progress, questions to the user, and Ctrl-C.
//!
//! Text from an engine passes through [`output`] before it reaches the terminal, so that it cannot control it.

pub(crate) mod interrupts;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod prompts;
pub(crate) mod tables;
