//! Access to instances: SSH keys, the gateway and the loopback proxy.

mod gateway;
mod loopback_proxy;
mod revocation;
mod s3_keys;
mod ssh_keys;
mod ssh_proofs;
