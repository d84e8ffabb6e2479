//! Real sockets: the HTTP listener, the SSH gateway and the loopback proxy.

mod connection_limits;
mod gateway;
mod loopback_proxy;
mod serve;
