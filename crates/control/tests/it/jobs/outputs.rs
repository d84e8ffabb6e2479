//! The outputs of jobs: stored ones, and the current ones of a running job.

use futures::StreamExt;
use rstest::rstest;
use tarn_control::jobs::outputs::{self, ByteRange, OpenOutput, OutputFile};
use tarn_control::testing::{World, world};
use tarn_driver::GuestStream;
use tarn_link::{FromOutputs, Purpose, Reader, Reply, Writer, opening};
use tarn_model::ids::JobId;
use tarn_model::jobs::{Outcome, State};
use tarn_model::objects::Details;
use tarn_objects::files::Sums;
use tarn_objects::internal;
use tarn_objects::put::{Condition, ObjectLocation};
use tarn_store::testing::DatabaseKind;

use super::operations::{move_on, place, queued};

async fn keep(world: &World, job: &JobId, path: &str, data: &[u8]) {
    let objects = world.control.objects();
    objects.ensure_internal("jobs").await.unwrap();
    let place =
        ObjectLocation { org: internal::account(), bucket: "jobs".into(), key: format!("{job}/outputs/{path}") };
    let mut intake = objects.intake(&place, None, Sums::default()).await.unwrap();
    intake.push(bytes::Bytes::copy_from_slice(data)).await.unwrap();
    let received = intake.finish().await.unwrap();
    objects.put(&place, received, Details::default(), Condition::default()).await.unwrap();
}

async fn running(world: &World) -> JobId {
    let cluster = world.running("1xCPU", 1).await;
    let job = queued(world, &cluster).await;
    place(world, &job).await;
    move_on(world, &job.id, State::run).await;
    job.id
}

async fn end(world: &World, job: &JobId) {
    move_on(world, job, |state| state.collect(Outcome::Completed)?.end()).await;
}

async fn bytes_of(output: OpenOutput) -> std::io::Result<Vec<u8>> {
    let mut body = output.body;
    let mut data = Vec::new();
    while let Some(piece) = body.next().await {
        data.extend_from_slice(&piece?);
    }
    Ok(data)
}

fn file(path: &str, size: u64) -> OutputFile {
    OutputFile { path: path.into(), size }
}

/// The files that a guest reports: path, announced size, and contents.
type GuestFiles = &'static [(&'static str, u64, &'static [u8])];

/// Installs a guest that has these files, and sends them on every request.
fn install_guest(world: &World, files: GuestFiles) {
    let dial = move |_: &_| {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let (reader, writer) = tokio::io::split(theirs);
            let (mut reader, mut writer) = (Reader::new(reader), Writer::new(writer));
            let Ok(Purpose::Outputs(order)) = opening::accept(&mut reader, &mut writer).await else { return };
            writer.message(&Reply::Ready).await.unwrap();
            for (path, size, data) in files {
                if !order.only.is_empty() && !order.only.iter().any(|only| only == path) {
                    continue;
                }
                let file = FromOutputs::File { path: (*path).into(), size: *size };
                if writer.message(&file).await.is_err() {
                    return;
                }
                if order.contents && (writer.data(data).await.is_err() || writer.eof().await.is_err()) {
                    return;
                }
            }
            let skipped = FromOutputs::Skipped { path: "results/link".into(), reason: "it leads outside".into() };
            let _ = writer.message(&skipped).await;
            let _ = writer.message(&FromOutputs::End).await;
        });
        Ok(Box::new(ours) as GuestStream)
    };
    world.driver.dial_guests(dial);
}

/// Stored outputs are listed and read.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn stored_outputs_are_listed_and_read(
    #[values(DatabaseKind::Sqlite, DatabaseKind::Postgres)] engine: DatabaseKind,
) {
    let Some(world) = world(engine).await else { return };
    let job = running(&world).await;
    let large: Vec<u8> = (0..300_000_u32).map(|at| (at % 253) as u8).collect();
    keep(&world, &job, "results/large.bin", &large).await;
    keep(&world, &job, "results/a b\n.txt", b"small").await;
    keep(&world, &job, "empty", b"").await;
    end(&world, &job).await;
    let (control, me) = (&world.control, &world.caller);
    let listed = outputs::list(control, me, job.as_str(), &[]).await.unwrap();
    assert!(!listed.live);
    let expected = [file("empty", 0), file("results/a b\n.txt", 5), file("results/large.bin", 300_000)];
    assert_eq!(listed.files, expected);
    let some = outputs::list(control, me, job.as_str(), &["empty".to_owned()]).await.unwrap();
    assert_eq!(some.files, [file("empty", 0)]);
    let wanted = ["empty".to_owned(), "no\x07such".to_owned()];
    let missing = outputs::list(control, me, job.as_str(), &wanted).await.unwrap_err();
    assert_eq!(missing.code, "no_such_output");
    assert!(missing.message.contains("no\u{fffd}such") && !missing.message.contains("empty"), "{}", missing.message);

    let open = |path: &'static str, range| outputs::open(control, &world.caller, &job, path, range);
    let whole = open("results/large.bin", None).await.unwrap();
    assert_eq!((whole.size, whole.range.clone()), (300_000, 0..300_000));
    assert!(bytes_of(whole).await.unwrap() == large);
    for (range, bytes) in [
        (ByteRange::From(299_990), 299_990..300_000),
        (ByteRange::Within(100, 199), 100..200),
        (ByteRange::Last(5), 299_995..300_000),
    ] {
        let part = open("results/large.bin", Some(range)).await.unwrap();
        assert_eq!(part.range, bytes.start as u64..bytes.end as u64);
        assert!(bytes_of(part).await.unwrap() == large[bytes]);
    }
    let beyond = open("results/large.bin", Some(ByteRange::From(300_000))).await.map(drop).unwrap_err();
    assert_eq!(beyond.code, "range_not_satisfiable");
    assert!(bytes_of(open("empty", None).await.unwrap()).await.unwrap().is_empty());
    for path in ["", "nothing", "../files", "results", "/empty", "results/../empty"] {
        assert_eq!(open(path, None).await.map(drop).unwrap_err().code, "no_such_output", "{path}");
    }
    let stranger = world.other_tenant().await;
    let denied = outputs::list(control, &stranger, job.as_str(), &[]).await.unwrap_err();
    assert_eq!(denied.code, "access_denied");
}

/// The outputs of a running job come from its node.
#[tokio::test(flavor = "multi_thread")]
async fn running_outputs_come_from_node() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let job = running(&world).await;
    let (control, me) = (&world.control, &world.caller);
    let silent = outputs::list(control, me, job.as_str(), &[]).await.unwrap_err();
    assert_eq!(silent.code, "node_unreachable");
    install_guest(
        &world,
        &[
            ("results/b", 5, b"hello"),
            ("results/a", 3, b"abc"),
            ("../escape", 3, b"abc"),
            ("/absolute", 3, b"abc"),
            ("results/shrank", 10, b"short"),
            ("results/grew", 2, b"longer"),
        ],
    );
    let listed = outputs::list(control, me, job.as_str(), &[]).await.unwrap();
    assert!(listed.live);
    let expected = [file("results/a", 3), file("results/b", 5), file("results/grew", 2), file("results/shrank", 10)];
    assert_eq!(listed.files, expected, "only clean paths, in order");
    let open = |path: &'static str, range| outputs::open(control, &world.caller, &job, path, range);
    assert_eq!(bytes_of(open("results/b", None).await.unwrap()).await.unwrap(), b"hello");
    let part = open("results/b", Some(ByteRange::Within(1, 3))).await.unwrap();
    assert_eq!((part.size, bytes_of(part).await.unwrap()), (5, b"ell".to_vec()));
    let grew = open("results/grew", None).await.unwrap();
    assert_eq!(bytes_of(grew).await.unwrap(), b"lo", "exactly the announced size");
    let shrank = open("results/shrank", None).await.unwrap();
    assert!(bytes_of(shrank).await.is_err(), "a reader must not take it for the whole file");
    for path in ["../escape", "/absolute", "nothing"] {
        assert_eq!(open(path, None).await.map(drop).unwrap_err().code, "no_such_output", "{path}");
    }
}

/// A queued job has no outputs.
#[tokio::test(flavor = "multi_thread")]
async fn queued_job_has_no_outputs() {
    let Some(world) = world(DatabaseKind::Sqlite).await else { return };
    let cluster = world.running("1xCPU", 1).await;
    let job = queued(&world, &cluster).await.id;
    let listed = outputs::list(&world.control, &world.caller, job.as_str(), &[]).await.unwrap();
    assert!(listed.files.is_empty() && listed.live);
    let missing = outputs::open(&world.control, &world.caller, &job, "a", None).await.map(drop).unwrap_err();
    assert_eq!(missing.code, "no_such_output");
}
