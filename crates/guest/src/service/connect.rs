//! Connections from inside the instance to somewhere.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tarn_link::{Answer, Endpoint, Reader, Result, Stream, Writer};
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::{Guest, pump, refuse};
use crate::sockets;

/// How long a connection may take to be made, over all addresses of the host.
const CONNECT_TIME: Duration = Duration::from_secs(30);

/// The longest name of a host.
const MAX_HOST: usize = 255;

/// The longest `/etc/hosts` that is read.
const MAX_HOSTS: u64 = 4 << 20;

/// Connects, and carries data.
pub(super) async fn serve<S: Stream>(
    guest: &Guest,
    endpoint: Endpoint,
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let connected = match timeout(CONNECT_TIME, connect(guest, endpoint)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long")),
    };
    match connected {
        Ok(stream) => {
            writer.message(&Answer::Ready).await?;
            pump::run(stream, reader, writer).await
        }
        Err(e) => refuse(&mut writer, format!("the connection was not made: {e}")).await,
    }
}

async fn connect(guest: &Guest, endpoint: Endpoint) -> io::Result<Box<dyn Stream>> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            let addresses = resolve(&guest.settings.root, &host, port).await?;
            let stream = TcpStream::connect(addresses.as_slice()).await?;
            // Small pieces of interactive traffic must not wait for one another.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Endpoint::Unix { path } => {
            let socket = sockets::as_user(guest, sockets::Action::Connect, &path).await?;
            Ok(Box::new(UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))?))
        }
        Endpoint::Agent => Err(io::Error::other("an agent is offered, not connected to")),
    }
}

/// The addresses of a host: `/etc/hosts` by hand, because its names change while the guest runs, then as the system does.
async fn resolve(root: &Path, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.is_empty() || host.len() > MAX_HOST {
        return Err(io::Error::other("that is no name of a host"));
    }
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let hosts = crate::bounded::read(&root.join("etc/hosts"), MAX_HOSTS).unwrap_or_default();
    let mut found = in_hosts(&String::from_utf8_lossy(&hosts), host);
    if found.is_empty() {
        found = tokio::net::lookup_host((host, port)).await?.map(|address| address.ip()).collect();
    }
    Ok(found.into_iter().map(|address| (address, port).into()).collect())
}

fn in_hosts(text: &str, host: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        if let Some(Ok(address)) = words.next().map(str::parse)
            && words.any(|name| name.eq_ignore_ascii_case(host))
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_hosts() {
        let text = "127.0.0.1 localhost # not node\n::1\tlocalhost\n10.0.0.2 c-1-0 node\nnonsense node\n";
        assert_eq!(in_hosts(text, "LOCALHOST").len(), 2);
        assert_eq!(in_hosts(text, "node"), ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        assert!(in_hosts(text, "#").is_empty());
    }
}
