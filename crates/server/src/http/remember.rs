//! What was answered and has not changed since: lists and infos are asked for again and again, by people who watch and by
//! clients that poll, and are mostly the same. Such an answer is given from memory as long as nothing at all was written.
//!
//! It stands behind authentication, so that a key that was revoked is refused at once, and works only where every change
//! is known: on PostgreSQL other replicas write, and nothing is remembered.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tarn_control::Caller;

use super::failure::Failure;
use crate::App;

/// The routes whose answers depend on nothing but the caller, the address and the database.
const ROUTES: [&str; 4] = ["/cluster/list", "/cluster/info/{cluster}", "/storage/list", "/storage/info/{storage_id}"];

/// Longer answers are not worth their memory.
const MAX_ANSWER: usize = 256 << 10;

/// How many bytes of answers are remembered in all.
const MAX_BYTES: usize = 8 << 20;

/// The answers of one generation of the database.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Generation>);

#[derive(Default)]
struct Generation {
    number: u64,
    answers: HashMap<String, Bytes>,
    bytes: usize,
}

impl Answers {
    fn get(&self, number: u64, key: &str) -> Option<Bytes> {
        let generation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generation.number == number { generation.answers.get(key).cloned() } else { None }
    }

    fn put(&self, number: u64, key: String, answer: Bytes) {
        let mut generation = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generation.number > number {
            return;
        }
        if generation.number < number || generation.bytes + answer.len() > MAX_BYTES {
            *generation = Generation { number, ..Generation::default() };
        }
        generation.bytes += key.len() + answer.len();
        generation.answers.insert(key, answer);
    }
}

/// Answers from memory, or lets the endpoint answer and remembers that.
pub(crate) async fn remember(State(app): State<App>, request: Request, next: Next) -> Response {
    // The number is taken before anything is read: what is written meanwhile makes this answer one of the past.
    let (Some(number), Some(key)) = (app.control.generation(), key(&request)) else { return next.run(request).await };
    if let Some(answer) = app.shared.answers.get(number, &key) {
        return json(answer);
    }
    let response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return response;
    }
    let (parts, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(answer) if answer.len() <= MAX_ANSWER => {
            app.shared.answers.put(number, key, answer.clone());
            Response::from_parts(parts, Body::from(answer))
        }
        Ok(answer) => Response::from_parts(parts, Body::from(answer)),
        Err(error) => Failure::internal(error).into_response(),
    }
}

/// Who asks for what, if it is one of the routes.
fn key(request: &Request) -> Option<String> {
    let route = request.extensions().get::<MatchedPath>()?;
    let asked = request.method() == Method::GET && ROUTES.contains(&route.as_str());
    let caller = request.extensions().get::<Caller>().filter(|_| asked)?;
    let target = request.uri().path_and_query()?;
    Some([caller.user.id.as_str(), " ", target.as_str()].concat())
}

fn json(answer: Bytes) -> Response {
    let mut response = Response::new(Body::from(answer));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_forgets_everything_and_memory_is_bounded() {
        let answers = Answers::default();
        answers.put(1, "a".into(), Bytes::from_static(b"old"));
        assert_eq!(answers.get(1, "a"), Some(Bytes::from_static(b"old")));
        assert_eq!(answers.get(2, "a"), None, "something was written");
        answers.put(2, "b".into(), Bytes::from_static(b"new"));
        answers.put(1, "c".into(), Bytes::from_static(b"late"));
        assert_eq!((answers.get(2, "a"), answers.get(2, "c")), (None, None), "the past is not remembered");
        for n in 0..100 {
            answers.put(2, format!("large {n}"), Bytes::from(vec![0; MAX_ANSWER]));
        }
        assert!(answers.0.lock().unwrap().bytes <= MAX_BYTES + 4096);
    }
}
