//! Facts that several checks need: whether an engine runs, which sockets listen, and how long a certificate is valid.

pub(super) mod certificate_validity;
pub(super) mod engine_state;
pub(super) mod listening_sockets;
