//! The limit of trivial jobs: `forkexec COUNT PARALLEL` runs /bin/true so many times, so many at once, and prints how many
//! ended each second.

use std::{env, process::Command, thread, time::Instant};

fn main() {
    let mut numbers = env::args().skip(1).map(|each| each.parse::<usize>().expect("a number"));
    let (count, parallel) = (numbers.next().unwrap_or(2000), numbers.next().unwrap_or(1));
    let began = Instant::now();
    let run = move || {
        for _ in 0..count / parallel {
            assert!(Command::new("/bin/true").status().expect("/bin/true runs").success());
        }
    };
    let threads: Vec<_> = (0..parallel).map(|_| thread::spawn(run)).collect();
    for each in threads {
        each.join().expect("no run failed");
    }
    println!("{:.0}", (count / parallel * parallel) as f64 / began.elapsed().as_secs_f64());
}
