use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::routing::{get, post};
use futures::{FutureExt, StreamExt, stream};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

/// Nothing here takes so long unless it hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a test needs of a running server. It stops with the test.
struct Fixture {
    address: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<io::Result<()>>,
    instances: mpsc::Sender<InstanceConnection>,
}

impl Fixture {
    fn start(router: Router, trusted: &[&str], timeouts: Timeouts) -> Fixture {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (instances, from_instances) = mpsc::channel(8);
        let trusted_proxies = trusted.iter().map(|network| network.parse().unwrap()).collect();
        let listening =
            Listening { tls: None, trusted_proxies, from_instances: None, refusals: RefusalForm::default() };
        let (stop, stopped) = oneshot::channel();
        let shutdown = async move { drop(stopped.await) };
        let server = Server::new(router, &listening, ConnectionLimits::default(), timeouts);
        let serving = tokio::spawn(server.serve(listener, Some(from_instances), shutdown, DEADLINE));
        Fixture { address, stop: Some(stop), serving, instances }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends the text on a connection of its own, and returns everything that comes until the server closes it.
    async fn exchange(&self, text: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(text.as_bytes()).await.unwrap();
        read_all(stream).await
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn read_all(mut stream: impl AsyncRead + Unpin) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await;
    let _ = read.expect("the server closes the connection");
    String::from_utf8(answer).unwrap()
}

/// A router that says who calls, that reads a body, and that refuses one without reading it.
fn router() -> Router {
    Router::new()
        .route("/who", get(async |Extension(ClientAddress(address)): Extension<ClientAddress>| address.to_string()))
        .route("/read", post(async |body: Bytes| format!("read {}", body.len())))
        .route("/refuse", post(async |_: Request| (StatusCode::FORBIDDEN, "refused")))
}

/// Responses without an end. Each holds `made_from`, whose references are counted.
fn endless(made_from: Arc<()>) -> Router {
    let answer = move || async move {
        let pieces = stream::repeat(Bytes::from_static(&[0; 65_536]));
        Body::from_stream(pieces.map(move |piece| {
            let _held = &made_from;
            Ok::<_, Infallible>(piece)
        }))
    };
    Router::new().route("/", get(answer))
}

/// A response that the client does not read is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn unread_response_is_dropped() {
    let held = Arc::new(());
    let timeouts = Timeouts { response_idle: Duration::from_millis(300), ..Timeouts::default() };
    let router = endless(held.clone());
    let idle = Arc::strong_count(&held);
    let fixture = Fixture::start(router, &[], timeouts);
    // The client reads only the beginning, so that the response is on its way.
    let mut client = fixture.connect().await;
    client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    client.read_exact(&mut [0; 1000]).await.unwrap();
    let given_up = async {
        while Arc::strong_count(&held) > idle {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, given_up).await.expect("the response is dropped after the idle timeout");
    // What was sent still arrives, and then the connection ends.
    let _ = client.read_to_end(&mut Vec::new()).await;
}

/// Thousands of silent connections from one address leave it, and others, served.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_leave_room() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let fixture = Fixture::start(router(), &[], Timeouts::default());
    let mut silent = Vec::new();
    for number in 0..5000 {
        let mut stream = fixture.connect().await;
        // Some begin a call, or HTTP/2, and never end it.
        let begun: &[u8] = [b"".as_slice(), b"GET /who HT", b"PRI * HTTP/2.0\r\n\r"][number % 3];
        let _ = stream.write_all(begun).await;
        silent.push(stream);
    }
    let answer = fixture.exchange("GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let answer = tokio::time::timeout(Duration::from_secs(1), answer).await.expect("it is served at once");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let is_open = |stream: &TcpStream| matches!(stream.try_read(&mut [0; 512]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    let closed = async {
        while silent.len() > 64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            silent.retain(is_open);
        }
    };
    tokio::time::timeout(DEADLINE, closed).await.expect("at most 64 silent connections stay open");
}

/// A connection that begins nothing, or does not end the head of its first call, is closed.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connection_is_closed() {
    let timeouts = Timeouts { first_byte: Duration::from_millis(100), ..Timeouts::default() };
    let fixture = Fixture::start(router(), &[], timeouts);
    assert_eq!(fixture.exchange("").await, "");
    let timeouts = Timeouts { head: Duration::from_millis(100), ..Timeouts::default() };
    let fixture = Fixture::start(router(), &[], timeouts);
    for beginning in ["PRI * HT", "GET /who HTTP/1.1\r\nhost: x\r\n"] {
        assert_eq!(fixture.exchange(beginning).await, "", "{beginning}");
    }
}

/// HTTP/2 without TLS is refused.
#[tokio::test(flavor = "multi_thread")]
async fn cleartext_http2_is_refused() {
    let fixture = Fixture::start(router(), &[], Timeouts::default());
    let answer = fixture.exchange("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
}

/// Calls without a host, or with two lengths, are refused, and their connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn malformed_call_is_refused() {
    let fixture = Fixture::start(router(), &[], Timeouts::default());
    let length = "content-length: 4\r\n";
    let chunked = "transfer-encoding: chunked\r\n";
    let post = "POST /read HTTP/1.1\r\nhost: x\r\n";
    let next = "GET /who HTTP/1.1\r\nhost: x\r\n\r\n";
    for (call, code) in [
        ("GET /who HTTP/1.1\r\n\r\n".to_owned(), "host_missing"),
        ("GET /who HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n".to_owned(), "host_missing"),
        (format!("{post}{length}{chunked}\r\n0\r\n\r\n"), "ambiguous_length"),
        (format!("{post}{chunked}{length}\r\n0\r\n\r\n"), "ambiguous_length"),
        (format!("{next}{post}{length}\r\nfour{post}{chunked}{length}\r\n0\r\n\r\n"), "ambiguous_length"),
    ] {
        let answer = fixture.exchange(&format!("{call}{next}")).await;
        let (_, refused) = answer.split_once("HTTP/1.1 400").unwrap_or_else(|| panic!("{call}: {answer}"));
        assert!(refused.contains(code) && refused.contains("connection: close"), "{answer}");
        assert!(!refused.contains("HTTP/1.1 200"), "nothing is read after it: {answer}");
    }
    let old = fixture.exchange("GET /who HTTP/1.0\r\n\r\n").await;
    assert!(old.contains("200 OK"), "HTTP/1.0 needs no host: {old}");
}

/// A response before the end of the body says that the connection ends, and one after it does not.
#[tokio::test(flavor = "multi_thread")]
async fn early_response_closes_connection() {
    let fixture = Fixture::start(router(), &[], Timeouts::default());
    let refuse = "POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: ";
    let smuggled = "GET /who HTTP/1.1\r\nhost: x\r\n\r\n";
    for early in [format!("{refuse}1000\r\n\r\n"), format!("{refuse}1000\r\nexpect: 100-continue\r\n\r\n")] {
        let mut stream = fixture.connect().await;
        stream.write_all(early.as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        let _ = stream.write_all(smuggled.as_bytes()).await;
        let rest = read_all(stream).await;
        assert!(rest.contains("connection: close") && !rest.contains("200"), "{rest}");
    }
    let whole = format!("{refuse}4\r\n\r\nfourPOST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nfour");
    let last = "GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answer = fixture.exchange(&format!("{whole}{last}")).await;
    assert_eq!((answer.matches("HTTP/1.1").count(), answer.matches("connection: close").count()), (3, 1), "{answer}");
}

/// The address of a client is that behind the trusted proxies, and only theirs can be given in a header.
#[tokio::test(flavor = "multi_thread")]
async fn trusted_proxy_names_client() {
    let call = "GET /who HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 6.6.6.6, 198.51.100.1\r\nconnection: close\r\n\r\n";
    for (trusted, address) in [(&["127.0.0.0/8"][..], "198.51.100.1"), (&["127.0.0.2"], "127.0.0.1")] {
        let answer = Fixture::start(router(), trusted, Timeouts::default()).exchange(call).await;
        assert!(answer.ends_with(&format!("\r\n\r\n{address}")), "{answer}");
    }
}

/// A client behind a trusted proxy has a number of calls in progress, on whatever connections, in the form of refusal of
/// the listener; others are served.
#[tokio::test(flavor = "multi_thread")]
async fn calls_behind_proxy_are_limited_per_client() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let fixture = Fixture::start(router(), &["127.0.0.0/8"], Timeouts::default());
    let from = |client: &str| format!("host: x\r\nx-forwarded-for: {client}\r\n");
    let mut held = Vec::new();
    for number in 0..forwarded::CALLS_PER_CLIENT {
        let mut stream = fixture.connect().await;
        let headers = from(&format!("2001:db9::{number:x}"));
        let call = format!("POST /read HTTP/1.1\r\n{headers}expect: 100-continue\r\ncontent-length: 4\r\n\r\n");
        stream.write_all(call.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(std::str::from_utf8(&answer), Ok("HTTP/1.1 100"));
        held.push(stream);
    }
    let call = |client: &str| format!("GET /who HTTP/1.1\r\n{}connection: close\r\n\r\n", from(client));
    let refused = fixture.exchange(&call("2001:db9::9:9")).await;
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("too_many_connections"), "{refused}");
    let served = fixture.exchange(&call("2001:db9:0:1::1")).await;
    assert!(served.starts_with("HTTP/1.1 200"), "another network is served: {served}");
    let unnamed = fixture.exchange("GET /who HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(unnamed.starts_with("HTTP/1.1 200"), "the proxy itself is served: {unnamed}");
    drop(held.pop());
    let freed = async { while !fixture.exchange(&call("2001:db9::9:9")).await.starts_with("HTTP/1.1 200") {} };
    tokio::time::timeout(DEADLINE, freed).await.expect("the place is free when the call has ended");
}

/// A connection from inside an instance has the address of the instance, which it cannot change.
#[tokio::test(flavor = "multi_thread")]
async fn connection_from_instance_has_its_address() {
    let fixture = Fixture::start(router(), &["0.0.0.0/0"], Timeouts::default());
    let (mut near, stream) = tokio::io::duplex(4096);
    let (instance, address) = ("i-000000000001".parse().unwrap(), Some(IpAddr::from([10, 64, 0, 2])));
    fixture.instances.send(InstanceConnection { stream, instance, address }).await.unwrap();
    let call = "GET /who HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 6.6.6.6\r\nconnection: close\r\n\r\n";
    near.write_all(call.as_bytes()).await.unwrap();
    let answer = read_all(near).await;
    assert!(answer.ends_with("\r\n\r\n10.64.0.2"), "{answer}");
}

/// Silent connections from inside an instance make room for each other, and another instance is served.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_from_instance_leave_room() {
    let fixture = Fixture::start(router(), &[], Timeouts { first_byte: DEADLINE, ..Timeouts::default() });
    let connect = async |instance: &str| {
        let (near, stream) = tokio::io::duplex(4096);
        let connection = InstanceConnection { stream, instance: instance.parse().unwrap(), address: None };
        fixture.instances.send(connection).await.unwrap();
        near
    };
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(connect("i-000000000001").await);
    }
    for instance in ["i-000000000002", "i-000000000001"] {
        let mut stream = connect(instance).await;
        stream.write_all(b"POST /read HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let answer = read_all(stream).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // The oldest are closed, and only they.
    for stream in &mut silent[..30] {
        let read = tokio::time::timeout(DEADLINE, stream.read(&mut [0; 16])).await;
        assert_eq!(read.expect("it is closed").unwrap(), 0);
    }
    for stream in &mut silent[40..] {
        assert!(stream.read(&mut [0; 16]).now_or_never().is_none());
    }
}

/// A call that began before the shutdown ends, and its connection with it.
#[tokio::test(flavor = "multi_thread")]
async fn running_call_ends_at_shutdown() {
    let mut fixture = Fixture::start(router(), &[], Timeouts::default());
    let mut stream = fixture.connect().await;
    stream
        .write_all(b"POST /read HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n")
        .await
        .unwrap();
    // The call runs as soon as its body is wanted.
    stream.read_exact(&mut [0; 25]).await.unwrap();
    fixture.stop.take().unwrap().send(()).unwrap();
    let refused = async {
        while TcpStream::connect(fixture.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, refused).await.expect("nobody listens any more");
    stream.write_all(b"four").await.unwrap();
    let answer = read_all(stream).await;
    assert!(answer.contains("connection: close") && answer.ends_with("read 4"), "{answer}");
    tokio::time::timeout(DEADLINE, &mut fixture.serving).await.expect("it ends").unwrap().unwrap();
}
