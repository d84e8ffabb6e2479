//! Jobs by HTTP alone: made, uploaded, started, looked at, canceled, deleted; their logs and their outputs.

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use rstest::rstest;
use serde_json::{Value, json};
use tarn_model::objects::Details;
use tarn_objects::files::Sums;
use tarn_objects::internal;
use tarn_objects::put::{Condition, ObjectLocation};
use tower::ServiceExt;

use crate::support::harness::{Answer, Call, DatabaseKind, World};

/// How the tests reach the engine.
pub(crate) const HOST: &str = "engine.example.org:7070";

pub(crate) const CONFIG: &str = "name = \"trial\"\ncommands = [\"echo hello\"]\noutputs = [\"out/*\"]\n";

impl World {
    /// A job on a cluster.
    pub(crate) async fn create_job(&self, key: &str, body: Value) -> Answer {
        let call = Call::new(Method::POST, "/job/create").key(key).header("host", HOST.as_bytes());
        self.call(call.json(&body)).await
    }

    /// A job without files that stays in the queue: no runner is active here.
    pub(crate) async fn pending_job(&self, key: &str, cluster: &str) -> String {
        let body = json!({ "tp_config": CONFIG, "cluster_id": cluster, "files": false, "start": true });
        let made = self.create_job(key, body).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.text("job_id")
    }

    /// Stores a part of the log of a job, as the task that runs the job would.
    pub(crate) async fn write_log(&self, job: &str, start: u64, data: &[u8]) {
        let (job, data): (tarn_model::ids::JobId, _) = (job.parse().unwrap(), data.to_vec());
        let write = self.store.write(move |tx| -> Result<(), tarn_store::Error> {
            let length = data.len() as u64;
            tarn_store::job_logs::insert(tx, &job, start, length, Some(&data))?;
            let lease = std::time::Duration::ZERO;
            tarn_store::jobs::set_log_bytes(tx, &job, 0, start + length, lease)
        });
        write.await.unwrap();
    }

    /// Stores an output of a job, as the task that runs the job would.
    pub(crate) async fn keep_output(&self, job: &str, path: &str, data: &[u8]) {
        let objects = self.control.objects();
        objects.ensure_internal("jobs").await.unwrap();
        let place =
            ObjectLocation { org: internal::account(), bucket: "jobs".into(), key: format!("{job}/outputs/{path}") };
        let mut intake = objects.intake(&place, None, Sums::default()).await.unwrap();
        intake.push(data.to_vec().into()).await.unwrap();
        let received = intake.finish().await.unwrap();
        objects.put(&place, received, Details::default(), Condition::default()).await.unwrap();
    }

    /// A call whose response is not JSON.
    pub(crate) async fn raw(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
    ) -> (u16, HeaderMap, Vec<u8>) {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }
}

/// The part of a URL after the address.
pub(crate) fn target(url: &str) -> &str {
    url.strip_prefix(&format!("http://{HOST}")).unwrap_or_else(|| panic!("{url} is not at {HOST}"))
}

/// An archive with one file.
pub(crate) fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, name, content).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

/// A job is created, uploaded, started and ended.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn job_lifecycle(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", Some("acme")).await;
    world.cluster(&ada, "box").await;
    assert_eq!(world.get(&ada, "/job/list").await.message(), "No jobs. Start with `tp job init`.");

    let made = world.create_job(&ada, json!({ "tp_config": CONFIG, "cluster_id": "box" })).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (job, url) = (made.text("job_id"), made.text("upload_url"));
    let early = world.post(&ada, &format!("/job/start/{job}"), json!({})).await;
    assert_eq!(early.refusal(), (409, "job_without_files".to_owned()));

    let files = archive("./main.py", b"print(1)\n");
    let put = || Call::new(Method::PUT, target(&url)).raw(&files);
    let uploaded = world.call(put()).await;
    assert_eq!((uploaded.status, &uploaded.body["bytes"]), (200, &json!(files.len())), "{uploaded:?}");
    assert_eq!(world.call(put()).await.refusal(), (409, "already_uploaded".to_owned()));

    let started = world.post(&ada, &format!("/job/start/{job}"), json!({})).await;
    assert_eq!((started.status, &started.body["status"]), (202, &json!("pending")), "{started:?}");
    let again = world.post(&ada, &format!("/job/start/{job}"), json!({})).await;
    assert_eq!(again.status, 202, "it stays as it is: {again:?}");
    insta::assert_json_snapshot!("job_info", world.get(&ada, &format!("/job/info/{job}")).await.redacted());
    insta::assert_json_snapshot!("list_jobs", world.get(&ada, "/job/list").await.redacted());
    let open = world.delete(&ada, &format!("/job/delete/{job}")).await;
    assert_eq!(open.refusal(), (409, "job_not_ended".to_owned()));

    let canceled = world.post(&ada, &format!("/job/cancel/{job}"), json!({})).await;
    insta::assert_json_snapshot!("cancel_job", canceled.redacted());
    assert_eq!(canceled.status, 202);
    let twice = world.post(&ada, &format!("/job/cancel/{job}"), json!({})).await;
    assert_eq!(twice.refusal(), (409, "job_ended".to_owned()));
    let info = world.get(&ada, &format!("/job/info/{job}")).await;
    assert_eq!(info.body["job_info"]["status"], "canceled");

    let deleted = world.delete(&ada, &format!("/job/delete/{job}")).await;
    insta::assert_json_snapshot!("delete_job", deleted.redacted());
    assert_eq!(deleted.status, 200);
    assert_eq!(world.get(&ada, &format!("/job/info/{job}")).await.refusal(), (404, "not_found".to_owned()));
    assert_eq!(world.get(&ada, "/job/list?all=true").await.body["jobs"], json!([]));
}

/// The template of a job file can be run.
#[tokio::test(flavor = "multi_thread")]
async fn job_template_can_run() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let cluster = world.cluster(&world.admin, "box").await;
    let begun = world.get(&world.admin, "/job/init").await;
    let (template, other) = (begun.text("empty_tp_config"), begun.text("config"));
    assert_eq!(template, other);
    let made = world.create_job(&world.admin, json!({ "tp_config": template, "cluster_id": cluster })).await;
    assert_eq!(made.status, 201, "{made:?}");
}

/// An invalid job is refused with its reason.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn invalid_job_is_refused(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&ada, "box").await;
    let body = |config: &str| json!({ "tp_config": config, "cluster_id": cluster });
    let wrong = world.create_job(&ada, body("commands = [\"true\"]\ncomands = 1\n")).await;
    assert_eq!(wrong.refusal(), (422, "invalid_config".to_owned()));
    assert!(wrong.message().contains("line 2"), "{}", wrong.message());
    assert_eq!(wrong.body["detail"][0]["loc"], json!(["body", "tp_config"]));
    assert_eq!(wrong.body["detail"][0]["msg"], wrong.body["message"]);
    assert_eq!(world.create_job(&ada, body("commands = []")).await.refusal().1, "invalid_config");
    assert_eq!(world.create_job(&ada, body("")).await.refusal(), (422, "validation_error".to_owned()));
    let both = json!({ "tp_config": CONFIG, "cluster_id": cluster, "start": true });
    assert_eq!(world.create_job(&ada, both).await.refusal(), (400, "files_missing".to_owned()));
    let nowhere = json!({ "tp_config": CONFIG, "cluster_id": "nowhere" });
    assert_eq!(world.create_job(&ada, nowhere).await.refusal(), (404, "not_found".to_owned()));
    let protect = json!({ "deletion_protection": true });
    assert_eq!(world.patch(&ada, &format!("/cluster/edit/{cluster}"), protect).await.status, 202);
    let teardown = json!({ "tp_config": CONFIG, "cluster_id": cluster, "teardown_cluster": true });
    assert_eq!(world.create_job(&ada, teardown).await.refusal(), (409, "deletion_protected".to_owned()));
    let hostless = world.post(&ada, "/job/create", body(CONFIG)).await;
    assert_eq!(hostless.refusal(), (400, "invalid_host".to_owned()));
    for path in ["info", "logs", "pull"] {
        let odd = Call::new(Method::GET, &format!("/job/{path}/nonsense")).key(&ada).header("host", HOST.as_bytes());
        assert_eq!(world.call(odd).await.refusal(), (400, "invalid_id".to_owned()), "{path}");
    }
    assert_eq!(world.get(&ada, "/job/list?all=true").await.body["jobs"], json!([]), "nothing was made");
}

/// A signature is valid for one purpose and one job.
#[tokio::test(flavor = "multi_thread")]
async fn signature_is_valid_for_one_purpose() {
    let world = World::open(DatabaseKind::Sqlite).await.unwrap();
    let cluster = world.cluster(&world.admin, "box").await;
    let body = json!({ "tp_config": CONFIG, "cluster_id": cluster });
    let (one, other) = (world.create_job(&world.admin, body.clone()).await, world.create_job(&world.admin, body).await);
    let (url, job, stranger) = (one.text("upload_url"), one.text("job_id"), other.text("job_id"));
    let good = target(&url);
    let (path, query) = good.split_once('?').unwrap();
    let expires = query.split('&').next().unwrap();
    let changed = [
        good.replace(&job, &stranger),
        good.replace(&job, "nonsense"),
        good.replace(expires, "expires=9000000000"),
        good.replace(expires, "expires=1"),
        good[..good.len() - 1].to_owned(),
        format!("{path}?{expires}&signature={}", "0".repeat(64)),
        format!("{path}?{expires}&signature=é"),
    ];
    for target in changed {
        let refused = world.call(Call::new(Method::PUT, &target).raw(&archive("a", b"a"))).await;
        assert_eq!(refused.refusal(), (403, "invalid_signature".to_owned()), "{target}");
    }
    for target in [path.to_owned(), format!("{path}?{expires}"), format!("{path}?expires=-1&signature=x")] {
        assert_eq!(world.call(Call::new(Method::PUT, &target)).await.status, 422, "{target}");
    }
    let output = good.replace("/job/upload/", "/job/output/") + "&path=a";
    let other_use = [(Method::GET, good.replace("/job/upload/", "/job/files/")), (Method::GET, output)];
    for (method, target) in other_use {
        let refused = world.call(Call::new(method, &target)).await;
        assert_eq!(refused.refusal(), (403, "invalid_signature".to_owned()), "{target}");
    }
    let broken = world.call(Call::new(Method::PUT, good).raw(b"no archive")).await;
    assert_eq!(broken.refusal(), (400, "invalid_archive".to_owned()));
    let whole = world.call(Call::new(Method::PUT, good).raw(&archive("a", b"a"))).await;
    assert_eq!(whole.status, 200, "what was refused is not in the way: {whole:?}");
}

/// A log is read by byte range.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn log_is_read_by_range(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&ada, "box").await;
    let job = world.pending_job(&ada, &cluster).await;
    let bearer = format!("Bearer {ada}");
    let read = async |query: &str| {
        let target = format!("/job/logs/{job}{query}");
        world.raw(Method::GET, &target, &[("authorization", &bearer)]).await
    };
    let (status, headers, log) = read("").await;
    assert_eq!((status, log.len(), &headers["x-log-size"]), (200, 0, &"0".parse().unwrap()));
    let written: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    for (at, piece) in written.chunks(700_000).enumerate() {
        world.write_log(&job, at as u64 * 700_000, piece).await;
    }
    let (status, headers, log) = read("").await;
    assert!(status == 200 && log == written, "{status} {}", log.len());
    assert_eq!(headers["content-type"], "application/octet-stream");
    assert_eq!(
        (&headers["content-length"], &headers["x-log-ended"]),
        (&"3000000".parse().unwrap(), &"false".parse().unwrap())
    );
    let cases = [("?offset=10&limit=5", 10..15), ("?offset=2999999", 2_999_999..3_000_000), ("?limit=0", 0..0)];
    let cases = cases.into_iter().chain([("?offset=3000000", 0..0), ("?offset=9999999&limit=7", 0..0)]);
    for (query, range) in cases.chain([("?limit=2500000&offset=1", 1..2_500_001)]) {
        let (status, _, log) = read(query).await;
        assert!(status == 200 && log == written[range.clone()], "{query} {status} {}", log.len());
    }
    assert_eq!(read("?offset=-1").await.0, 422);
    assert_eq!(read("?wait=61").await.0, 422);
    let (status, _, log) = read("?offset=2999999&wait=60").await;
    assert!(status == 200 && log == written[2_999_999..], "what is there is not waited for");
    let (status, headers, log) = read("?offset=3000000&wait=1").await;
    assert_eq!((status, log.len(), &headers["x-log-ended"]), (200, 0, &"false".parse().unwrap()));
    let ending = async {
        world.write_log(&job, 3_000_000, b"more").await;
        world.post(&ada, &format!("/job/cancel/{job}"), json!({})).await;
    };
    let (waited, ()) = tokio::join!(read("?offset=3000000&wait=60"), ending);
    assert_eq!((waited.0, waited.2.as_slice()), (200, b"more".as_slice()));
    assert_eq!(read("?limit=1").await.1["x-log-ended"], "true");
    assert_eq!(read("?offset=3000004&wait=60").await.2, b"", "an end is not waited for");
    let other = world.pending_job(&ada, &cluster).await;
    let target = format!("/job/logs/{other}?wait=60");
    let headers = [("authorization", bearer.as_str())];
    let waiting = world.raw(Method::GET, &target, &headers);
    let (waited, ()) = tokio::join!(waiting, async { world.app.stop_waiting() });
    assert_eq!((waited.0, waited.2.len()), (200, 0), "an engine that is about to end lets nobody wait");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_pulled(#[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] database: DatabaseKind) {
    let Some(world) = World::open(database).await else { return };
    let ada = world.user("ada@example.org", None).await;
    let cluster = world.cluster(&ada, "box").await;
    let job = world.pending_job(&ada, &cluster).await;
    let pull = async |query: &str| {
        let call = Call::new(Method::GET, &format!("/job/pull/{job}?system=linux&dry_run=False{query}"));
        world.call(call.key(&ada).header("host", HOST.as_bytes())).await
    };
    let none = pull("").await;
    assert_eq!((none.status, &none.body["download_map"], &none.body["command"]), (200, &json!({}), &Value::Null));
    world.post(&ada, &format!("/job/cancel/{job}"), json!({})).await;
    world.keep_output(&job, "out/model.pth", b"0123456789").await;
    world.keep_output(&job, "out/a b&c=é.txt", b"").await;

    let pulled = pull("&private_key_path=%2Fhome%2Fada%2Fkey").await;
    let map = pulled.body["download_map"].as_object().unwrap();
    assert_eq!(map.keys().collect::<Vec<_>>(), ["out/a b&c=é.txt", "out/model.pth"]);
    assert_eq!(pulled.message(), format!("Job {job} is canceled; it has 2 files, 10 bytes."));
    let url = target(map["out/model.pth"].as_str().unwrap());
    let plain = [("content-type", "application/octet-stream")];
    let (status, headers, data) = world.raw(Method::GET, url, &plain).await;
    assert_eq!(
        (status, data.as_slice(), &headers["content-length"]),
        (200, &b"0123456789"[..], &"10".parse().unwrap())
    );
    assert_eq!(headers["content-disposition"], "attachment; filename*=UTF-8''model.pth");
    let empty = world.raw(Method::GET, target(map["out/a b&c=é.txt"].as_str().unwrap()), &plain).await;
    assert_eq!((empty.0, empty.2.len()), (200, 0));
    let (status, headers, data) = world.raw(Method::GET, url, &[("range", "bytes=2-4")]).await;
    assert_eq!(
        (status, data.as_slice(), &headers["content-range"]),
        (206, &b"234"[..], &"bytes 2-4/10".parse().unwrap())
    );
    let (status, headers, _) = world.raw(Method::GET, url, &[("range", "bytes=10-")]).await;
    assert_eq!((status, &headers["content-range"]), (416, &"bytes */10".parse().unwrap()));
    let conditional = [("range", "bytes=2-4"), ("if-range", "Wed, 21 Oct 2015 07:28:00 GMT")];
    assert_eq!(world.raw(Method::GET, url, &conditional).await.0, 200);
    let (status, headers, data) = world.raw(Method::HEAD, url, &[]).await;
    assert_eq!((status, data.len(), &headers["content-length"]), (200, 0, &"10".parse().unwrap()));
    let moved = url.replace("model.pth", "other.pth");
    assert_eq!(world.raw(Method::GET, &moved, &[]).await.0, 403);

    assert_eq!(pull("&dry_run=True").await.body["download_map"]["out/model.pth"], Value::Null);
    let one = pull("&files=out%2Fmodel.pth").await;
    assert_eq!(one.body["download_map"].as_object().unwrap().len(), 1);
    let missing = pull("&files=out%2Fmodel.pth&files=out%2Fnone").await;
    assert_eq!(missing.refusal(), (404, "no_such_output".to_owned()));
    assert_eq!(pull("&system=amiga").await.status, 422);
}
