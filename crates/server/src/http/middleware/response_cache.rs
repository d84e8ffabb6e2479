//! Caches responses of lists and infos, which clients poll and which mostly do not change. A response is served from
//! the cache as long as nothing was written to the database.
//!
//! The cache is behind authentication, so that a revoked key is refused at once, and works only where every change is
//! known: on PostgreSQL other replicas write, and nothing is cached.

use std::collections::HashMap;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use tarn_control::Caller;

use crate::App;
use crate::http::output::failure::Failure;

/// The routes whose responses depend only on the caller, the address and the database.
const ROUTES: [&str; 4] = ["/cluster/list", "/cluster/info/{cluster}", "/storage/list", "/storage/info/{storage_id}"];

/// Longer responses are not cached.
const MAX_RESPONSE_BYTES: usize = 256 << 10;

/// The total size of the cached responses.
const MAX_TOTAL_BYTES: usize = 8 << 20;

/// The cached responses of one generation of the database.
#[derive(Default)]
pub(crate) struct ResponseCache(Mutex<Generation>);

#[derive(Default)]
struct Generation {
    number: u64,
    responses: HashMap<String, Bytes>,
    bytes: usize,
}

impl ResponseCache {
    fn get(&self, number: u64, key: &str) -> Option<Bytes> {
        let generation = self.0.lock();
        if generation.number == number { generation.responses.get(key).cloned() } else { None }
    }

    fn put(&self, number: u64, key: String, body: Bytes) {
        let mut generation = self.0.lock();
        if generation.number > number {
            return;
        }
        if generation.number < number || generation.bytes + body.len() > MAX_TOTAL_BYTES {
            *generation = Generation { number, ..Generation::default() };
        }
        generation.bytes += key.len() + body.len();
        generation.responses.insert(key, body);
    }
}

/// Responds from the cache, or calls the endpoint and caches its response.
pub(crate) async fn serve_from_cache(State(app): State<App>, request: Request, next: Next) -> Response {
    // The number is read before anything else: a write in between makes this response outdated.
    let (Some(number), Some(key)) = (app.control.generation(), cache_key(&request)) else {
        return next.run(request).await;
    };
    if let Some(body) = app.shared.response_cache.get(number, &key) {
        return json_response(body);
    }
    let response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return response;
    }
    let (parts, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(body) if body.len() <= MAX_RESPONSE_BYTES => {
            app.shared.response_cache.put(number, key, body.clone());
            Response::from_parts(parts, Body::from(body))
        }
        Ok(body) => Response::from_parts(parts, Body::from(body)),
        Err(error) => Failure::internal(error).into_response(),
    }
}

/// Returns the key of a call in the cache, if its route is cached.
fn cache_key(request: &Request) -> Option<String> {
    let route = request.extensions().get::<MatchedPath>()?;
    let asked = request.method() == Method::GET && ROUTES.contains(&route.as_str());
    let caller = request.extensions().get::<Caller>().filter(|_| asked)?;
    let target = request.uri().path_and_query()?;
    Some([caller.user.id.as_str(), " ", target.as_str()].concat())
}

fn json_response(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change empties the cache, and its size is bounded.
    #[test]
    fn change_empties_bounded_cache() {
        let responses = ResponseCache::default();
        responses.put(1, "a".into(), Bytes::from_static(b"old"));
        assert_eq!(responses.get(1, "a"), Some(Bytes::from_static(b"old")));
        assert_eq!(responses.get(2, "a"), None, "something was written");
        responses.put(2, "b".into(), Bytes::from_static(b"new"));
        responses.put(1, "c".into(), Bytes::from_static(b"late"));
        assert_eq!((responses.get(2, "a"), responses.get(2, "c")), (None, None), "an outdated response is not cached");
        for n in 0..100 {
            responses.put(2, format!("large {n}"), Bytes::from(vec![0; MAX_RESPONSE_BYTES]));
        }
        assert!(responses.0.lock().bytes <= MAX_TOTAL_BYTES + 4096);
    }
}
