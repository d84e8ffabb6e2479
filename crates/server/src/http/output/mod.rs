//! What endpoints return: a JSON response or a failure, and the tables and text blocks that the stock client prints.

pub(crate) mod failure;
pub(crate) mod response;
pub(crate) mod table;
pub(crate) mod warnings;
