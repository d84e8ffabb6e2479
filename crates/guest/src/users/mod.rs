//! The users and groups of an instance.
//!
//! `accounts` reads them from the files of the instance, and `images` decides which user an instance of a container
//! image has.

mod accounts;
pub(crate) mod images;

pub use accounts::{Account, Accounts, find_session_account};
