//! Connections from inside the instance.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use tarn_link::{Endpoint, Reader, Reply, Result, Stream, Writer, relay};
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::{Guest, send_refusal};
use crate::process::user_sockets;

/// How long a connection may take to open, over all addresses of the host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum length of a host name.
const MAX_HOST_NAME: usize = 255;

/// The maximum length of `/etc/hosts` that is read.
const MAX_HOSTS_FILE: u64 = 4 << 20;

/// Opens a connection and relays its data.
pub(super) async fn serve_connect<S: Stream>(
    guest: &Guest,
    endpoint: Endpoint,
    reader: Reader<ReadHalf<S>>,
    mut writer: Writer<WriteHalf<S>>,
) -> Result<()> {
    let connected = match timeout(CONNECT_TIMEOUT, connect_endpoint(guest, endpoint)).await {
        Ok(connected) => connected,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "it timed out")),
    };
    match connected {
        Ok(stream) => {
            writer.message(&Reply::Ready).await?;
            relay_connection(stream, reader, writer).await
        }
        Err(e) => send_refusal(&mut writer, format!("the connection could not be opened: {e}")).await,
    }
}

async fn connect_endpoint(guest: &Guest, endpoint: Endpoint) -> io::Result<Box<dyn Stream>> {
    match endpoint {
        Endpoint::Tcp { host, port } => {
            let addresses = resolve_host(&guest.settings.root, &host, port).await?;
            let stream = TcpStream::connect(addresses.as_slice()).await?;
            // Small pieces of interactive traffic must not be delayed.
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Endpoint::Unix { path } => {
            let socket = user_sockets::open_as_user(guest, user_sockets::Action::Connect, &path).await?;
            Ok(Box::new(UnixStream::from_std(std::os::unix::net::UnixStream::from(socket))?))
        }
        Endpoint::Agent => Err(io::Error::other("a connection to the agent can only come from a session")),
    }
}

/// Returns the addresses of a host: from `/etc/hosts`, read directly because it changes while the guest runs, else from
/// the system's resolver.
async fn resolve_host(root: &Path, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if host.is_empty() || host.len() > MAX_HOST_NAME {
        return Err(io::Error::other("that is not a host name"));
    }
    if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let hosts = crate::filesystem::read_bounded(&root.join("etc/hosts"), MAX_HOSTS_FILE).unwrap_or_default();
    let mut found = find_in_hosts_file(&String::from_utf8_lossy(&hosts), host);
    if found.is_empty() {
        found = tokio::net::lookup_host((host, port)).await?.map(|address| address.ip()).collect();
    }
    Ok(found.into_iter().map(|address| (address, port).into()).collect())
}

fn find_in_hosts_file(text: &str, host: &str) -> Vec<IpAddr> {
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

/// Relays data until both directions have ended, or the link stream breaks.
pub(super) async fn relay_connection<R, W>(
    connection: Box<dyn Stream>,
    mut reader: Reader<R>,
    mut writer: Writer<W>,
) -> Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (mut from, mut to) = tokio::io::split(connection);
    let inwards = relay::link_to_connection(&mut reader, &mut to, |_| ());
    let outwards = relay::connection_to_link(&mut from, &mut writer, |_| ());
    tokio::try_join!(inwards, outwards).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are found in `/etc/hosts`.
    #[test]
    fn hosts_file_resolves_names() {
        let text = "127.0.0.1 localhost # not node\n::1\tlocalhost\n10.0.0.2 c-1-0 node\nnonsense node\n";
        assert_eq!(find_in_hosts_file(text, "LOCALHOST").len(), 2);
        assert_eq!(find_in_hosts_file(text, "node"), ["10.0.0.2".parse::<IpAddr>().unwrap()]);
        assert!(find_in_hosts_file(text, "#").is_empty());
    }
}
