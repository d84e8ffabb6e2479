//! The output of attempts: all of it, in order, for as long as the engine needs it.

use tarn_link::{Frame, FromJob, JobEnd, Purpose, ToJob};

use super::{done, finish, follow, following, order, processes, read_text, read_until, run, start, stop};
use crate::lab::{Lab, eventually};

#[tokio::test]
async fn much_output_arrives_as_it_was_written() {
    let lab = Lab::new();
    let seen = run(&lab, &order(&["head -c 50000000 /dev/urandom | tee copy"])).await;
    seen.assert_end(JobEnd::Exited { code: 0 });
    let job = std::fs::read_dir(lab.root.home().join("jobs")).unwrap().next().unwrap().unwrap().path();
    let copy = std::fs::read(job.join("copy")).unwrap();
    assert!(seen.output == copy, "{} of {} bytes, or others", seen.output.len(), copy.len());
}

#[tokio::test]
async fn who_follows_later_gets_what_he_misses() {
    let lab = Lab::new();
    let mine = order(&["seq 1 1000; echo half; until test -e go; do sleep 0.01; done; seq 1001 2000"]);
    let mut first = start(&lab, &mine).await;
    let half = read_text(&mut first, "half\n").await;
    // The engine dies; the job does not care.
    drop(first);
    let mut second = follow(&lab, &mine, half.len() as u64).await;
    let mut third = follow(&lab, &mine, 5).await;
    std::fs::write(lab.root.home().join("jobs").join(&mine.job).join("go"), "").unwrap();
    let rest: String = (1001..=2000).map(|number| format!("{number}\n")).collect();
    let seen = finish(&mut second).await;
    assert_eq!(seen.text(), rest);
    seen.assert_end(JobEnd::Exited { code: 0 });
    assert_eq!(finish(&mut third).await.text(), half[5..].to_owned() + &rest);
    // The same order again is the same attempt.
    let mut again = start(&lab, &mine).await;
    assert_eq!(finish(&mut again).await.text(), half + &rest);
    done(again).await;
    assert_eq!(lab.ask(following(&mine, 0)).await.unwrap().0, tarn_link::Answer::NoSuchJob);
}

#[tokio::test]
async fn who_reads_slowly_holds_nobody_up() {
    let lab = Lab::new();
    let mine = order(&["head -c 20000000 /dev/zero"]);
    let slow = start(&lab, &mine).await;
    let mut quick = follow(&lab, &mine, 0).await;
    let seen = finish(&mut quick).await;
    assert_eq!(seen.output.len(), 20_000_000);
    seen.assert_end(JobEnd::Exited { code: 0 });
    drop(slow);
}

#[tokio::test]
async fn acknowledged_output_is_given_back_to_the_disk() {
    use std::os::unix::fs::MetadataExt as _;
    let lab = Lab::new();
    let mine = order(&["head -c 30000000 /dev/urandom; echo; until test -e go; do sleep 0.01; done; echo end"]);
    let mut link = start(&lab, &mine).await;
    let before = read_until(&mut link, |seen| seen.output.len() > 30_000_000).await;
    let log = lab.root.path().join("var/lib/tarn/jobs").join(&mine.job).join("1/log");
    link.1.message(&ToJob::Acknowledged { offset: 30_000_000 }).await.unwrap();
    eventually("the disk has it back", || log.metadata().unwrap().blocks() * 512 < 16_000_000).await;
    let refused = lab.ask(following(&mine, 0)).await.unwrap_err();
    assert!(refused.to_string().contains("kept no more"), "{refused}");
    let refused = lab.ask(Purpose::RunJob(Box::new(mine.clone()))).await.unwrap_err();
    assert!(refused.to_string().contains("kept no more"), "{refused}");
    std::fs::write(lab.root.home().join("jobs").join(&mine.job).join("go"), "").unwrap();
    let mut later = follow(&lab, &mine, 30_000_000).await;
    assert_eq!(finish(&mut later).await.output, b"\nend\n");
    assert_eq!(before.output.len(), 30_000_001);
}

#[tokio::test]
async fn an_end_is_kept_until_it_is_written_down() {
    let lab = Lab::new();
    let mine = order(&["echo on; sleep 1000"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    link.1.message(&ToJob::Done).await.unwrap();
    assert_eq!(link.0.read().await.unwrap(), None, "who is done too early is sent away");
    assert!(!processes(&mine).is_empty(), "and the job goes on");
    stop(&lab, &mine, 0).await;
    for _ in 0..2 {
        let mut link = follow(&lab, &mine, 0).await;
        let seen = finish(&mut link).await;
        assert_eq!(seen.text(), "on\n");
        seen.assert_end(JobEnd::Stopped);
    }
    let mut link = follow(&lab, &mine, 0).await;
    finish(&mut link).await;
    done(link).await;
}

#[tokio::test]
async fn nonsense_from_a_follower_ends_his_stream_only() {
    let lab = Lab::new();
    let mine = order(&["echo on; until test -e go; do sleep 0.01; done"]);
    let mut link = start(&lab, &mine).await;
    read_text(&mut link, "on").await;
    let mut odd = follow(&lab, &mine, 1 << 40).await;
    odd.1.message(&ToJob::Acknowledged { offset: u64::MAX }).await.unwrap();
    odd.1.data(b"nonsense").await.unwrap();
    loop {
        match odd.0.read().await.unwrap() {
            None => break,
            Some(Frame::Message(message)) => assert_eq!(Frame::parse::<FromJob>(&message).unwrap(), FromJob::Started),
            Some(other) => panic!("{other:?}"),
        }
    }
    std::fs::write(lab.root.home().join("jobs").join(&mine.job).join("go"), "").unwrap();
    finish(&mut link).await.assert_end(JobEnd::Exited { code: 0 });
}
