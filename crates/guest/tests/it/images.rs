//! Instances of container images: logins, peers and jobs.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tarn_link::{Configuration, FromGuest, FromJob, Image, JobEnd, Program, Pty, Purpose, Reply, Session};

use crate::fixture::{Fixture, OTHER_UID, Root, finish, is_root};
use crate::jobs;

/// Builds the root of an image: its user is the user of the test, and the named programs exist.
fn root(programs: &[&str]) -> Root {
    let root = Root::new(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    for program in programs {
        let path = root.path().join(program);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::create_dir(root.path().join("work")).unwrap();
    root
}

fn image() -> Image {
    let variables = [("PATH", "/bin:/usr/bin"), ("WORD", "image"), ("HOME", "/elsewhere"), ("LD_LIBRARY_PATH", "/lib")];
    Image {
        environment: variables.map(|(name, value)| (name.into(), value.into())).to_vec(),
        user: Some("tester".into()),
        directory: Some("/work".into()),
    }
}

/// Programs get the environment and directory of the image.
#[tokio::test]
async fn image_settings_reach_programs() {
    let fixture = Fixture::of_image(root(&["bin/bash"]), Some(image()));
    let said = fixture.run("echo $PATH $WORD $LD_LIBRARY_PATH; pwd; echo $HOME $USER $SHELL").await.text();
    let home = fixture.root.home();
    let work = fixture.root.path().join("work");
    let wanted = format!("/bin:/usr/bin image /lib\n{}\n{} tester /bin/bash\n", work.display(), home.display());
    assert_eq!(said, wanted);
    // The client takes precedence over the image, and the guest over the client.
    let environment = [("WORD", "client"), ("HOME", "/mine")].map(|(name, value)| (name.into(), value.into())).to_vec();
    let program = Program::Exec("echo $WORD $HOME".into());
    let mut link = fixture.begin(Session { program, environment, ..Session::default() }).await;
    assert_eq!(finish(&mut link).await.text(), format!("client {}\n", home.display()));
}

/// A missing working directory is replaced by the home directory.
#[tokio::test]
async fn missing_directory_falls_back_to_home() {
    let image = Image { directory: Some("/nowhere".into()), ..image() };
    let fixture = Fixture::of_image(root(&["bin/sh"]), Some(image));
    assert_eq!(fixture.run("pwd; echo $SHELL").await.text(), format!("{}\n/bin/sh\n", fixture.root.home().display()));
}

/// Without a shell, a login is refused with a message, and programs run.
#[tokio::test]
async fn image_without_shell_runs_programs() {
    let fixture = Fixture::of_image(root(&[]), Some(image()));
    for pty in [None, Some(Pty::default())] {
        let mut link = fixture.begin(Session { program: Program::Shell, pty, ..Session::default() }).await;
        let outcome = finish(&mut link).await;
        assert_eq!(outcome.end, FromGuest::Exited { code: 127 });
        let said = [outcome.output, outcome.errors].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("this image has no shell") && said.contains("ssh HOST /path/to/program"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(fixture.run("echo 'two words' $HOME \"a\\\"b\"").await.text(), "two words $HOME a\"b\n");
    assert_eq!(fixture.run("/bin/pwd").await.text(), format!("{}\n", fixture.root.path().join("work").display()));
    for (line, why) in
        [("no-such-program x", "no-such-program: no such program"), ("echo 'a", "quote"), ("", "no shell")]
    {
        let outcome = fixture.run(line).await;
        assert_eq!(outcome.end, FromGuest::Exited { code: 127 }, "{line}");
        assert!(String::from_utf8_lossy(&outcome.errors).contains(why), "{line}: {outcome:?}");
    }
}

/// A user without an entry can log in.
#[tokio::test]
async fn user_without_entry_logs_in() {
    if !is_root() {
        return;
    }
    let root = root(&["bin/bash"]);
    for name in ["etc/passwd", "etc/group"] {
        std::fs::remove_file(root.path().join(name)).unwrap();
    }
    let user = Some(format!("{OTHER_UID}:7"));
    let fixture = Fixture::of_image(root, Some(Image { user, environment: Vec::new(), directory: None }));
    assert_eq!(fixture.run("id -u; id -G; echo $USER").await.text(), format!("{OTHER_UID}\n7\n{OTHER_UID}\n"));
}

/// Hostile files in an image do not prevent a login.
#[tokio::test]
async fn hostile_files_do_not_prevent_login() {
    let root = root(&["bin/bash"]);
    // Essential paths are broken links, files, or belong to another user.
    std::os::unix::fs::symlink("nowhere", root.path().join("var")).unwrap();
    std::fs::remove_dir_all(root.path().join("etc")).unwrap();
    std::os::unix::fs::symlink("usr/etc", root.path().join("etc")).unwrap();
    std::fs::create_dir_all(root.path().join("usr/etc")).unwrap();
    let many: String = (0..100_000).map(|n| format!("u{n}:x:{n}:{n}::/:/bin/sh\n")).collect();
    root.write("etc/passwd", &many);
    let many: String = (0..100_000).map(|n| format!("g{n}:x:{n}:u1,u2\n")).collect();
    root.write("etc/group", &many);
    std::os::unix::fs::symlink("/etc/passwd", root.path().join("usr/etc/hosts")).unwrap();
    let fixture =
        Fixture::of_image(root, Some(Image { user: Some(rustix::process::getuid().as_raw().to_string()), ..image() }));
    assert_eq!(fixture.run("echo in").await.text(), "in\n");
    let told = Configuration { hosts: vec![("c-1-0".into(), "10.1.0.2".into())], ..Configuration::default() };
    let (answer, _) = fixture.ask(Purpose::Configure(Box::new(told))).await.unwrap();
    assert_eq!(answer, Reply::Ready);
    assert!(fixture.root.read("etc/hosts").contains("10.1.0.2\tc-1-0"), "the link was replaced");
    assert!(!std::fs::read_to_string("/etc/passwd").unwrap().contains("c-1-0"));
    let state = fixture.root.path().join("var/lib/tarn").metadata().unwrap();
    assert_eq!(state.mode() & 0o777, 0o700);
}

/// The guest's directory is private, whatever the image had there.
#[tokio::test]
async fn guest_directory_replaces_image_content() {
    let root = root(&["bin/bash"]);
    std::fs::create_dir_all(root.path().join("var/lib")).unwrap();
    let elsewhere = root.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, root.path().join("var/lib/tarn")).unwrap();
    let fixture = Fixture::of_image(root, Some(image()));
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    let Fixture { root, .. } = fixture;
    std::fs::set_permissions(root.path().join("var/lib/tarn"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let fixture = Fixture::of_image(root, Some(image()));
    let own = fixture.root.path().join("var/lib/tarn").symlink_metadata().unwrap();
    assert_eq!((own.is_dir(), own.mode() & 0o777), (true, 0o700));
    assert!(Path::new(&fixture.root.path().join("var/lib/tarn/guest.json")).exists());
}

/// Jobs get the image's environment, and need a shell.
#[tokio::test]
async fn jobs_use_the_images_environment() {
    let fixture = Fixture::of_image(root(&["bin/sh"]), Some(image()));
    let order = jobs::order(&["echo $WORD $USER; pwd"]);
    let seen = jobs::run(&fixture, &order).await;
    let place = fixture.root.home().join("jobs").join(&order.job);
    assert_eq!(seen.text(), format!("image tester\n{}\n", place.display()));
    seen.assert_end(JobEnd::Exited { code: 0 });

    let fixture = Fixture::of_image(root(&[]), Some(image()));
    let mut link = jobs::start(&fixture, &jobs::order(&["true"])).await;
    let Some(FromJob::NotStarted { reason, may_work_later }) = jobs::finish(&mut link).await.end else { panic!() };
    assert!(reason.contains("the image has no shell") && !may_work_later, "{reason}");
}
