//! The output of attempts: complete, in order, and for as long as the engine needs it.

use std::fs::File;

use rustix::fs::SeekFrom;
use tarn_link::{Frame, FromJob, JobEnd, Purpose, ToJob};

use super::{done, finish, follow, following, order, processes, read_text, read_until, run, start, stop};
use crate::fixture::{Fixture, eventually};

/// Large output arrives unchanged.
#[tokio::test]
async fn large_output_arrives_unchanged() {
    let fixture = Fixture::new();
    let seen = run(&fixture, &order(&["head -c 50000000 /dev/urandom | tee copy"])).await;
    seen.assert_end(JobEnd::Exited { code: 0 });
    let job = std::fs::read_dir(fixture.root.home().join("jobs")).unwrap().next().unwrap().unwrap().path();
    let copy = std::fs::read(job.join("copy")).unwrap();
    assert!(seen.output == copy, "{} of {} bytes, or others", seen.output.len(), copy.len());
}

/// A late follower gets the output that it missed.
#[tokio::test]
async fn late_follower_gets_missed_output() {
    let fixture = Fixture::new();
    let mine = order(&["seq 1 1000; echo half; until test -e go; do sleep 0.01; done; seq 1001 2000"]);
    let mut first = start(&fixture, &mine).await;
    let half = read_text(&mut first, "half\n").await;
    // The engine disconnects; the job continues.
    drop(first);
    let mut second = follow(&fixture, &mine, half.len() as u64).await;
    let mut third = follow(&fixture, &mine, 5).await;
    std::fs::write(fixture.root.home().join("jobs").join(&mine.job).join("go"), "").unwrap();
    let rest: String = (1001..=2000).map(|number| format!("{number}\n")).collect();
    let seen = finish(&mut second).await;
    assert_eq!(seen.text(), rest);
    seen.assert_end(JobEnd::Exited { code: 0 });
    assert_eq!(finish(&mut third).await.text(), half[5..].to_owned() + &rest);
    // The same order again follows the same attempt.
    let mut again = start(&fixture, &mine).await;
    assert_eq!(finish(&mut again).await.text(), half + &rest);
    done(again).await;
    assert_eq!(fixture.ask(following(&mine, 0)).await.unwrap().0, tarn_link::Reply::NoSuchJob);
}

/// A slow reader blocks no other follower.
#[tokio::test]
async fn slow_reader_blocks_no_other() {
    let fixture = Fixture::new();
    let mine = order(&["head -c 20000000 /dev/zero"]);
    let slow = start(&fixture, &mine).await;
    let mut quick = follow(&fixture, &mine, 0).await;
    let seen = finish(&mut quick).await;
    assert_eq!(seen.output.len(), 20_000_000);
    seen.assert_end(JobEnd::Exited { code: 0 });
    drop(slow);
}

/// Acknowledged output is removed from the disk.
#[tokio::test]
async fn acknowledged_output_frees_disk() {
    let fixture = Fixture::new();
    let mine = order(&["head -c 30000000 /dev/urandom; echo; until test -e go; do sleep 0.01; done; echo end"]);
    let mut link = start(&fixture, &mine).await;
    let before = read_until(&mut link, |seen| seen.output.len() > 30_000_000).await;
    let log = fixture.root.path().join("var/lib/tarn/jobs").join(&mine.job).join("1/log");
    link.1.message(&ToJob::Acknowledged { offset: 30_000_000 }).await.unwrap();
    // The number of blocks would not show it: a filesystem may reserve more of them behind the end of a growing file.
    let first_byte = || rustix::fs::seek(File::open(&log).unwrap(), SeekFrom::Data(0)).unwrap();
    eventually("the disk has it back", || first_byte() > 14_000_000).await;
    let refused = fixture.ask(following(&mine, 0)).await.unwrap_err();
    assert!(refused.to_string().contains("no longer kept"), "{refused}");
    let refused = fixture.ask(Purpose::RunJob(Box::new(mine.clone()))).await.unwrap_err();
    assert!(refused.to_string().contains("no longer kept"), "{refused}");
    std::fs::write(fixture.root.home().join("jobs").join(&mine.job).join("go"), "").unwrap();
    let mut later = follow(&fixture, &mine, 30_000_000).await;
    assert_eq!(finish(&mut later).await.output, b"\nend\n");
    assert_eq!(before.output.len(), 30_000_001);
}

/// An outcome is kept until the engine has stored it.
#[tokio::test]
async fn outcome_is_kept_until_stored() {
    let fixture = Fixture::new();
    let mine = order(&["echo on; sleep 1000"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    link.1.message(&ToJob::Done).await.unwrap();
    assert_eq!(link.0.read().await.unwrap(), None, "a confirmation before the end closes the stream");
    assert!(!processes(&mine).is_empty(), "and the job goes on");
    stop(&fixture, &mine, 0).await;
    for _ in 0..2 {
        let mut link = follow(&fixture, &mine, 0).await;
        let seen = finish(&mut link).await;
        assert_eq!(seen.text(), "on\n");
        seen.assert_end(JobEnd::Stopped);
    }
    let mut link = follow(&fixture, &mine, 0).await;
    finish(&mut link).await;
    done(link).await;
}

/// A malformed message of a follower ends only its stream.
#[tokio::test]
async fn malformed_follower_ends_its_stream_only() {
    let fixture = Fixture::new();
    let mine = order(&["echo on; until test -e go; do sleep 0.01; done"]);
    let mut link = start(&fixture, &mine).await;
    read_text(&mut link, "on").await;
    let mut odd = follow(&fixture, &mine, 1 << 40).await;
    odd.1.message(&ToJob::Acknowledged { offset: u64::MAX }).await.unwrap();
    odd.1.data(b"nonsense").await.unwrap();
    loop {
        match odd.0.read().await.unwrap() {
            None => break,
            Some(Frame::Message(message)) => assert_eq!(Frame::parse::<FromJob>(&message).unwrap(), FromJob::Started),
            Some(other) => panic!("{other:?}"),
        }
    }
    std::fs::write(fixture.root.home().join("jobs").join(&mine.job).join("go"), "").unwrap();
    finish(&mut link).await.assert_end(JobEnd::Exited { code: 0 });
}
