//! Real sockets: the HTTP listener, the SSH gateway and the loopback proxy.

mod gateway;
mod loopback_proxy;
mod serve;
